package relay

import "golang.org/x/sys/unix"

// pipe is what spliced data waits in: n bytes at the moment.
type pipe struct {
	r, w, n int
	size    int
}

// pipeSize is what a pipe is made to hold, where the kernel lets it: a whole window of a fast connection.
const pipeSize = 1 << 20

// keptPipes is the number of unused pipes that a loop keeps.
const keptPipes = 32

// pipes are those of one loop.
type pipes struct {
	unused     []*pipe
	made, most int
}

func (p *pipes) init(most int) { p.most = most }

// take gives an empty pipe; nil where there are too many already. Data is copied then.
func (p *pipes) take() *pipe {
	if n := len(p.unused); n > 0 {
		x := p.unused[n-1]
		p.unused = p.unused[:n-1]
		return x
	}
	if p.made >= p.most {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	p.made++
	x := &pipe{r: fds[0], w: fds[1], size: 64 << 10}
	if n, err := unix.FcntlInt(uintptr(x.w), unix.F_SETPIPE_SZ, pipeSize); err == nil {
		x.size = n
	}
	return x
}

// give takes a pipe back. One that is not empty is done with.
func (p *pipes) give(x *pipe) {
	if x.n == 0 && len(p.unused) < keptPipes {
		p.unused = append(p.unused, x)
		return
	}
	closeFD(x.r)
	closeFD(x.w)
	p.made--
}

func (p *pipes) close() {
	for _, x := range p.unused {
		closeFD(x.r)
		closeFD(x.w)
	}
	p.unused = nil
}
