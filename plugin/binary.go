package plugin

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
)

// architectures of nodes as Node.status.nodeInfo names them.
var architectures = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm", elf.EM_386: "386",
	elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x", elf.EM_RISCV: "riscv64",
}

// CheckBinary says why a file cannot be copied into pods and run there, and else which architecture it is for.
func CheckBinary(file string) (architecture string, err error) {
	const next = "name a Linux svcnet with --copy-binary=FILE, or an image that has one with --image"
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("copy the program %w (%s)", err, next)
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return "", fmt.Errorf("copy the program %s: it is no Linux program (%s)", file, next)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", fmt.Errorf("copy the program %s: it needs libraries that images may not have (build it with CGO_ENABLED=0)", file)
	}
	architecture, known := architectures[program.Machine]
	if !known {
		return "", fmt.Errorf("copy the program %s: it is for %s, which is no architecture of nodes (%s)", file, program.Machine, next)
	}
	return architecture, nil
}
