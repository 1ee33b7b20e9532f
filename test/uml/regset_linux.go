package uml

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// regset is a library that stands between the kernel of a guest and ptrace; why is said there.
//
//go:embed ptrace/regset.c
var regset string

// wideRegisters tells whether the processor has registers that the kernel of a guest has no room for.
var wideRegisters = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && regexp.MustCompile(`(?m)^flags\s*:.*\bamx_tile\b`).Match(text)
})

// compiler is what builds the library.
const compiler = "cc"

// buildRegset writes the library into a folder and returns its path.
func buildRegset(dir string) (string, error) {
	file := dir + "/regset.so"
	c := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-nostdlib", "-x", "c", "-o", file, "-")
	c.Stdin = strings.NewReader(regset)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build the library that gives ptrace all registers: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return file, nil
}
