package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Instance is the one proxy of a node: as long as it is held, no other can be.
type Instance struct {
	file *os.File
	path string
}

// Hold takes the node for this process. The lock ends with the process, however that ends; what the file says may be of
// one that was killed.
func Hold(folder string, r Running) (*Instance, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the runtime folder: %w (run as root)", err)
	}
	path := filepath.Join(folder, "proxy.json")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the runtime file: %w (run as root)", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		var other Running
		if json.NewDecoder(f).Decode(&other) == nil && other.PID > 0 {
			return nil, fmt.Errorf("%w: process %d, since %s, %s mode (stop it with kill %d)", ErrRunning, other.PID, other.Started.Format(time.RFC3339), other.Mode, other.PID)
		}
		return nil, fmt.Errorf("%w: it holds %s", ErrRunning, path)
	}
	data, err := json.Marshal(r)
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(append(data, '\n'), 0)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &Instance{f, path}, nil
}

// Release gives the node back. The file stays, empty: removing it would let two take two files of one name.
func (i *Instance) Release() {
	_ = i.file.Truncate(0) // it is a courtesy to readers
	i.file.Close()
}

// IsRunning tells what proxy runs on the node; nil: none.
func IsRunning(folder string) (*Running, error) {
	f, err := os.Open(filepath.Join(folder, "proxy.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the runtime file: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		return nil, nil // the one that wrote it has ended
	}
	r := &Running{}
	if json.NewDecoder(f).Decode(r) != nil {
		return &Running{}, nil
	}
	return r, nil
}
