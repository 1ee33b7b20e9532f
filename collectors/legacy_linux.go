package collectors

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyFamily is what differs between the two families of iptables' old interface.
type legacyFamily struct {
	// names lists the tables that are registered in the thread's network namespace. Asking the kernel for any
	// other registers it.
	names         string
	domain, level int
	// next and counters are offsets in an entry of a table.
	next, counters int
}

var legacyFamilies = map[int]legacyFamily{
	4: {names: "/proc/thread-self/net/ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, next: 90, counters: 96},
	6: {names: "/proc/thread-self/net/ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6, next: 142, counters: 152},
}

// tables are the registered tables, in the kernel's order, last registered first.
func (f legacyFamily) tables() ([]string, error) {
	data, err := os.ReadFile(f.names)
	if err != nil {
		return nil, reasonOf(err)
	}
	return strings.Fields(string(data)), nil
}

// The options of getsockopt, and the structures that they fill in: a name of 32 bytes stands first in each.
const (
	optInfo    = 64
	optEntries = 65
	tableName  = 32
	infoSize   = 84
	infoBytes  = 80 // offset of the size of all entries
	entriesOff = 40
)

// mark is a digest of all rules of some tables, counters left out. Each table is read at one moment; a
// registered table must be named only.
func (f legacyFamily) mark(tables []string) (string, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	sum := sha256.New()
	for _, t := range tables {
		fmt.Fprintf(sum, "%s\n", t)
		if err := f.sum(fd, t, sum); err != nil {
			return "", fmt.Errorf("ask for table %s: %w", t, err)
		}
	}
	return string(sum.Sum(nil)), nil
}

// sum adds the rules of one table.
func (f legacyFamily) sum(fd int, table string, to hash.Hash) error {
	for range maxTries {
		info := make([]byte, infoSize)
		copy(info[:tableName-1], table)
		if err := getsockopt(fd, f.level, optInfo, info); err != nil {
			return err
		}
		size := int(binary.NativeEndian.Uint32(info[infoBytes:]))
		entries := make([]byte, entriesOff+size)
		copy(entries[:tableName-1], table)
		binary.NativeEndian.PutUint32(entries[tableName:], uint32(size))
		err := getsockopt(fd, f.level, optEntries, entries)
		if errors.Is(err, unix.EAGAIN) { // replaced in between by one of another size
			continue
		}
		if err != nil {
			return err
		}
		f.withoutCounters(entries[entriesOff:])
		to.Write(info)
		to.Write(entries[entriesOff:])
		return nil
	}
	return unix.EAGAIN
}

// withoutCounters zeroes the counters of every entry.
func (f legacyFamily) withoutCounters(entries []byte) {
	for len(entries) >= f.counters+16 {
		next := int(binary.NativeEndian.Uint16(entries[f.next:]))
		if next < f.counters+16 || next > len(entries) {
			return
		}
		clear(entries[f.counters : f.counters+16])
		entries = entries[next:]
	}
}

func getsockopt(fd, level, option int, value []byte) error {
	n := uint32(len(value))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return nil
}
