package uml

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// oneCPU picks a CPU of this machine that no other guest has, until release is called; ok is false where all are taken.
// A guest is a kernel that stops and resumes its processes through ptrace, several times for every one of their system
// calls: on two CPUs that is two switches across, and takes twice as long as on one.
func oneCPU() (cpu string, release func(), ok bool) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return "", nil, false
	}
	for n := range len(allowed) * strconv.IntSize {
		if !allowed.IsSet(n) {
			continue
		}
		// An abstract socket belongs to one process, ends with it, and leaves no file.
		if l, err := net.Listen("unix", fmt.Sprintf("@svcnet-guest-on-cpu-%d", n)); err == nil {
			return strconv.Itoa(n), func() { _ = l.Close() }, true
		}
	}
	return "", nil, false
}
