package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// watchCost measures a watched node.
func watchCost(inside func(argv ...string) *exec.Cmd, bin, backend string, long time.Duration) error {
	c := inside(bin, "audit", "--watch", "--node", "node-1", "-o", "json")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil || !strings.Contains(first, `"started"`) {
		return fmt.Errorf("the watch does not begin: %w: %s", err, first)
	}
	go func() { _, _ = lines.WriteTo(nothing{}) }()
	// What it found at once is looked at again until it is sure.
	time.Sleep(30 * time.Second)
	if err := measure("idle", c.Process.Pid, long, nil); err != nil {
		return err
	}
	rule := []string{"iptables-" + backend, "-w", "-A", "FORWARD", "-s", "203.0.113.1", "-j", "ACCEPT"}
	add := true
	return measure("a rule written each second", c.Process.Pid, long, func() error {
		rule[2] = map[bool]string{true: "-A", false: "-D"}[add]
		add = !add
		if said, err := inside(rule...).CombinedOutput(); err != nil {
			return fmt.Errorf("write a rule: %w: %s", err, said)
		}
		return nil
	})
}

type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }

// measure prints the CPU time that a process and the programs that it ran took, as a share of one CPU, and its memory.
func measure(what string, pid int, long time.Duration, each func() error) error {
	before, err := cpuOf(pid)
	if err != nil {
		return err
	}
	begun := time.Now()
	for time.Since(begun) < long {
		if each != nil {
			if err := each(); err != nil {
				return err
			}
		}
		time.Sleep(time.Second)
	}
	after, err := cpuOf(pid)
	if err != nil {
		return err
	}
	wall := time.Since(begun)
	fmt.Printf("%-28s CPU %6.2f s in %4.0f s: %5.2f%% of one   memory %s\n", what, (after - before).Seconds(), wall.Seconds(), 100*float64(after-before)/float64(wall), memoryOf(pid))
	return nil
}

// cpuOf is the time of a process with that of its ended children.
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	const utime, last = 11, 14 // utime, stime, cutime, cstime
	if len(fields) <= last {
		return 0, fmt.Errorf("/proc/%d/stat: %s", pid, data)
	}
	ticks := 0
	for _, f := range fields[utime : last+1] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ, on every Linux that there is
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// memoryOf is what a process has and had at most.
func memoryOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	at := func(name string) string {
		_, rest, _ := strings.Cut(string(data), "\n"+name+":")
		n, _ := strconv.Atoi(strings.Fields(rest)[0])
		return fmt.Sprintf("%d MB", n>>10)
	}
	return at("VmRSS") + ", at most " + at("VmHWM")
}

// watched is the answer to a watch: nothing ever happens.
func watched(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if q.URL.Query().Get("sendInitialEvents") == "true" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		return
	}
	w.(http.Flusher).Flush()
	<-q.Context().Done()
}
