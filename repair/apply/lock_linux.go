package apply

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A lock keeps others from writing at the same time. Programs that are run inherit it: it is free when the last of them
// has ended, whatever became of svcnet.
type lock struct{ file *os.File }

// patience is how long a lock is waited for: a program that outlived svcnet is given time to end.
const patience = 10 * time.Second

// hold makes the folder and takes its lock. who is written into it, for those who find it taken.
func hold(folder, who string) (*lock, error) { return holdWithin(folder, who, patience) }

// holdWithin is hold with another patience.
func holdWithin(folder, who string, patience time.Duration) (*lock, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, refuse("make the folder of journals: %v (run as root, or name another with --journal)", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, refuse("take the lock: %v (run as root, or name another folder with --journal)", err)
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Since(begun) > patience {
			break
		}
	}
	if err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 200))
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, refuse("another svcnet is at work on this node: %s holds %s", strings.TrimSpace(string(holder)), filepath.Join(folder, "lock"))
		}
		return nil, refuse("take the lock %s: %v", filepath.Join(folder, "lock"), err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%s (pid %d)\n", who, os.Getpid()), 0)
		_ = err // it is a courtesy to others
	}
	return &lock{f}, nil
}

// release lets the lock go, as far as this process is concerned.
func (l *lock) release() { l.file.Close() }
