package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A process is one program that the lab runs: etcd, kube-apiserver, a kube-proxy.
type process struct {
	name, log string
	cmd       *exec.Cmd
	ended     chan struct{} // closed once it is reaped
	err       error         // how it ended; read after ended
}

// grace is how long a program may take between SIGTERM and SIGKILL. Nothing of it is kept, so it is short.
const grace = 3 * time.Second

// start runs a program inside a namespace. Its output goes to the end of a log file. It dies with this process,
// whatever that dies of: the kernel sends it SIGKILL when the namespace's thread ends.
func (l *Lab) start(ns *Namespace, name, log string, env []string, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	p := &process{name: name, log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, out, out
	// A group of its own: Ctrl-C at a terminal is for the lab, which stops its programs in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := ns.call(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := l.state.addProcess(name, p.cmd.Process.Pid); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), p.stop())
	}
	return p, nil
}

// running tells whether the program has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// failure says how a program ended that should not have.
func (p *process) failure() error {
	return fmt.Errorf("%s ended: %w; its log %s ends: %s", p.name, p.err, p.log, logTail(p.log))
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// stop ends the program, kindly first. A program that is stopped by SIGSTOP gets its SIGKILL too.
func (p *process) stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

// logTail is the end of a log, for an error.
func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const size = 4096
	end, err := f.Seek(0, 2)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(size, end))
	n, err := f.ReadAt(b, end-int64(len(b)))
	if n == 0 && err != nil {
		return err.Error()
	}
	return "\n" + lastLines(b[:n], 12)
}
