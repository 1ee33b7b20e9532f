package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// State is what a lab left a note of while it was made, so that another process can enter it, and clean up behind
// a process that died. It lies in the lab's folder as state.json.
type State struct {
	Name string
	// Owner is the process that holds the lab.
	Owner Process
	// Processes are the programs that were started, oldest first; ended ones stay listed until the lab goes.
	Processes []Process
	// Namespaces by their full names, in the order in which they were made.
	Namespaces []string
	// Folders to remove, beside the lab's own.
	Folders []string

	mu   sync.Mutex
	path string
}

// A Process is told by its pid and its start time: the kernel gives the pid of a dead process to another one.
type Process struct {
	Name string
	PID  int
	// Start is when it was started, in clock ticks since boot (field 22 of /proc/PID/stat).
	Start uint64
}

// folderOf is where a lab of that name keeps its files.
func folderOf(name string) string { return filepath.Join(os.TempDir(), "svcnet-lab-"+name) }

// newState claims the name: its folder must not be there.
func newState(name string) (*State, error) {
	folder := folderOf(name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("bring lab %s up: %s is there: it is up already, or its process died; lab down -name %s cleans up", name, folder, name)
		}
		return nil, fmt.Errorf("bring lab %s up: %w", name, err)
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bring lab %s up: %w", name, err), os.Remove(folder))
	}
	s := &State{Name: name, Owner: Process{"lab", os.Getpid(), start}, path: filepath.Join(folder, "state.json")}
	if err := s.save(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return s, nil
}

// ReadState reads the note of the lab of that name. The error is fs.ErrNotExist when there is none.
func ReadState(name string) (*State, error) {
	folder := folderOf(name)
	info, err := os.Lstat(folder)
	if err != nil {
		return nil, fmt.Errorf("find lab %s: %w", name, err)
	}
	// The folder's name can be guessed, and what is noted in it gets killed.
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("find lab %s: %s is not a folder that this user alone can write: not made by a lab of ours", name, folder)
	}
	s := &State{path: filepath.Join(folder, "state.json")}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("find lab %s: %w", name, err)
	}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	return s, nil
}

// save writes the note whole, whenever its writer dies.
func (s *State) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("note what the lab made: %w", err)
	}
	if err := os.WriteFile(s.path+".part", text, 0o600); err != nil {
		return fmt.Errorf("note what the lab made: %w", err)
	}
	if err := os.Rename(s.path+".part", s.path); err != nil {
		return fmt.Errorf("note what the lab made: %w", err)
	}
	return nil
}

func (s *State) addProcess(name string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Processes = append(s.Processes, Process{name, pid, start})
	return s.save()
}

func (s *State) addNamespace(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Namespaces = append(s.Namespaces, name)
	return s.save()
}

func (s *State) dropNamespace(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n string) bool { return n == name })
	return s.save()
}

func (s *State) addFolder(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Folders = append(s.Folders, path)
	return s.save()
}

// Alive tells whether that very process runs.
func (p Process) Alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// end sends a signal to that very process and waits until it is gone, a while.
func (p Process) end(sig syscall.Signal, wait time.Duration) bool {
	for deadline := time.Now().Add(wait); p.Alive(); time.Sleep(20 * time.Millisecond) {
		if sig != 0 {
			if err := syscall.Kill(p.PID, sig); err != nil {
				return !p.Alive()
			}
			sig = 0 // once
		}
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// DownLeftover takes down the lab of that name, whoever made it: its process is asked first, if it lives; what it
// leaves, or left when it died, is ended by pid and start time and removed. It says whether there was one.
func DownLeftover(name string) (found bool, err error) {
	s, err := ReadState(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if s.Owner.PID != os.Getpid() && s.Owner.end(syscall.SIGTERM, 30*time.Second) {
		if _, err := os.Lstat(folderOf(name)); errors.Is(err, fs.ErrNotExist) {
			return true, nil // it cleaned up itself
		}
	}
	if s.Owner.PID != os.Getpid() && !s.Owner.end(syscall.SIGKILL, 5*time.Second) {
		return true, fmt.Errorf("take lab %s down: its process %d does not end", name, s.Owner.PID)
	}
	// What the owner did since the first look counts too.
	if again, err := ReadState(name); err == nil {
		s = again
	}
	return true, s.clean()
}

// clean ends and removes what is noted, in this order: programs, namespaces, files.
func (s *State) clean() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(s.Processes) {
		if !p.end(syscall.SIGTERM, grace) && !p.end(syscall.SIGKILL, 5*time.Second) {
			errs = append(errs, fmt.Errorf("end %s: process %d stays", p.Name, p.PID))
		}
	}
	for _, n := range slices.Backward(s.Namespaces) {
		errs = append(errs, deleteNamespace(n))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take lab %s down: %w; its folder %s stays for another try", s.Name, err, filepath.Dir(s.path))
	}
	for _, f := range append(slices.Clone(s.Folders), filepath.Dir(s.path)) {
		errs = append(errs, os.RemoveAll(f))
	}
	return errors.Join(errs...)
}

// startTime is field 22 of /proc/PID/stat. The second field is a name in brackets that may hold anything.
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read when process %d started: %w", pid, err)
	}
	rest := string(text)[strings.LastIndexByte(string(text), ')')+1:]
	f := strings.Fields(rest)
	if len(f) < 20 {
		return 0, fmt.Errorf("read when process %d started: /proc/%d/stat is cut short", pid, pid)
	}
	if f[0] == "Z" {
		return 0, fmt.Errorf("process %d has ended", pid) // and waits for its parent
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read when process %d started: %w", pid, err)
	}
	return start, nil
}
