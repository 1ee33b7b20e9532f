/*
 * What User-Mode Linux asks of ptrace, on processors with AMX.
 *
 * Linux takes the extended registers of a process as a whole or not at all: PTRACE_SETREGSET of NT_X86_XSTATE fails unless
 * the buffer is as large as everything that the processor has (arch/x86/kernel/fpu/regset.c, xstateregs_set). The kernel of
 * Debian's user-mode-linux, 6.1, has room for what there was before AMX, and stops with "ptrace set fp regs failed". So its
 * registers are laid over those that the process has. The tiles, which no guest can use, stay untouched.
 *
 * Written without headers, so that a compiler is all that it takes.
 */
typedef unsigned long word;

extern long syscall(long number, ...);
extern int *__errno_location(void);

enum { sys_ptrace = 101, peek_first = 1, peek_last = 3, get_regset = 0x4204, set_regset = 0x4205, xstate = 0x202 };

struct iovec {
	unsigned char *base;
	word len;
};

/* The header of the extended registers, behind the legacy ones, begins with which of them hold something. */
enum { present = 512 };
static const word tiles = 3UL << 17;

long ptrace(long request, long pid, void *addr, void *data)
{
	static unsigned char whole[16384] __attribute__((aligned(64)));

	request = (int)request;
	pid = (int)pid;
	if (request >= peek_first && request <= peek_last) {
		/* The library returns the word, where the kernel writes it. */
		long value;

		if (syscall(sys_ptrace, request, pid, addr, &value) < 0)
			return -1;
		*__errno_location() = 0;
		return value;
	}
	if (request == set_regset && (word)addr == xstate) {
		struct iovec *given = data, all = { whole, sizeof(whole) };
		word i;

		if (syscall(sys_ptrace, (long)get_regset, pid, addr, &all) < 0)
			return -1;
		for (i = 0; i < given->len && i < all.len; i++)
			whole[i] = given->base[i];
		*(word *)(whole + present) &= ~tiles;
		return syscall(sys_ptrace, request, pid, addr, &all);
	}
	return syscall(sys_ptrace, request, pid, addr, data);
}
