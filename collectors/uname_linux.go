package collectors

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readUname names the kernel, in the text of `uname -a`.
func readUname(_ context.Context, p *place) []snapshot.Evidence {
	file := p.dir + "uname.txt"
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return []snapshot.Evidence{couldNot(file, snapshot.Uname, "the kernel's name", err)}
	}
	text := fmt.Sprintf("%s %s %s %s %s GNU/Linux\n", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Nodename[:]),
		unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]), unix.ByteSliceToString(u.Machine[:]))
	return []snapshot.Evidence{evidence(file, snapshot.Uname, []byte(text))}
}
