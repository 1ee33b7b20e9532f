// Command bench measures the userspace proxy beside HAProxy and nginx (stream), in a network namespace of its own, on
// its loopback device: the same client, the same server, each proxy in turn, in several rounds.
//
//	go run ./test/relay/cmd/bench             everything, 5 rounds
//	go run ./test/relay/cmd/bench -rounds 3 -for 2s -only connections,transfer-1 -proxies relay,nginx
//
// It needs root, and Debian's haproxy, nginx and libnginx-mod-stream, which `make bench-relay` installs.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// inside says that this process is in its network namespace already.
const inside = "SVCNET_BENCH_INSIDE"

func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "relay":
			return serveRelay(args[1:])
		case "copy":
			return serveCopy(args[1:])
		}
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := f.Int("rounds", 5, "rounds, at most 50")
	span := f.Duration("for", 3*time.Second, "how long one measurement takes, at most 1m")
	only := f.String("only", "", "some scenarios (comma)")
	some := f.String("proxies", "", "some proxies (comma)")
	profile := f.String("profile", "", "write a CPU profile of the relay here")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *rounds > 50 || *span > time.Minute {
		return errors.New("at most 50 rounds and 1 minute")
	}
	if os.Getenv(inside) == "" {
		return enter(args)
	}
	dir, err := os.MkdirTemp("", "svcnet-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{dir: dir, rounds: *rounds, span: *span, only: list(*only), some: list(*some), profile: *profile}
	defer b.stop()
	if err := b.prepare(); err != nil {
		return err
	}
	return b.measure()
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// enter runs this program again in a network namespace that ends with it.
func enter(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		return fmt.Errorf("in a network namespace: %w (run as root)", err)
	}
	return nil
}

// scenario is one thing that is measured.
type scenario struct {
	name, unit string
	// load are the arguments of the client; kind is which of a proxy's addresses it is given.
	load []string
	kind int
	// better says which of the result's numbers is compared, and whether less is better.
	value func(result) float64
	less  bool
}

// The addresses of a proxy.
const (
	answers = iota
	source
	datagrams
)

func scenarios(span time.Duration) []scenario {
	s := span.String()
	perSecond := func(r result) float64 { return float64(r.Done) / r.Seconds }
	megabytes := func(r result) float64 { return float64(r.Done) / r.Seconds / 1e6 }
	p50, p99 := func(r result) float64 { return r.P50 }, func(r result) float64 { return r.P99 }
	answered := func(r result) float64 { return 100 * float64(r.Done) / float64(max(1, r.Sent)) }
	return []scenario{
		{"transfer-1", "MB/s", []string{"transfer", "-clients", "1", "-for", s}, source, megabytes, false},
		{"transfer-8", "MB/s", []string{"transfer", "-clients", "8", "-for", s}, source, megabytes, false},
		{"connections", "1/s", []string{"connections", "-clients", "64", "-for", s}, answers, perSecond, false},
		{"requests-1000", "1/s", []string{"requests", "-clients", "1000", "-for", s}, answers, perSecond, false},
		{"paced-1000 p50", "µs", []string{"requests", "-clients", "1000", "-rate", "10000", "-for", s}, answers, p50, true},
		{"paced-1000 p99", "µs", nil, answers, p99, true},
		{"dns-10000", "% answered", []string{"datagrams", "-rate", "10000", "-for", s}, datagrams, answered, false},
		{"dns-10000 p99", "µs", nil, datagrams, p99, true},
	}
}

// result is what package main of cmd/load prints.
type result struct {
	Done, Failed, Sent int64
	Seconds            float64
	P50, P99           float64
}

type bench struct {
	dir     string
	rounds  int
	span    time.Duration
	only    []string
	some    []string
	profile string
	load    string
	started []*exec.Cmd
	proxies []*proxy
}

func (b *bench) stop() {
	for _, c := range b.started {
		_ = c.Process.Signal(syscall.SIGTERM)
	}
	for _, c := range b.started {
		done := make(chan struct{})
		go func() { _ = c.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			_ = c.Process.Kill()
			<-done
		}
	}
}

// background starts a command that runs until the end.
func (b *bench) background(argv ...string) (*exec.Cmd, error) {
	c := exec.Command(argv[0], argv[1:]...)
	log, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("log%d", len(b.started))))
	if err != nil {
		return nil, err
	}
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		return nil, err
	}
	b.started = append(b.started, c)
	return c, nil
}

// backends are where the server answers: several addresses, so that no proxy runs out of ports.
var backends = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"}

func (b *bench) prepare() error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	for name, value := range map[string]string{"ipv4/ip_local_port_range": "10240 65000", "ipv4/tcp_tw_reuse": "1", "ipv4/tcp_max_tw_buckets": "20000"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set sysctl: %w", err)
		}
	}
	b.load = filepath.Join(b.dir, "load")
	c := exec.Command("go", "build", "-o", b.load, "./test/relay/cmd/load")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build the load generator: %w: %s", err, out)
	}
	// An answer comes from the address that was asked only where that address is listened on.
	udp := strings.Join(backends, ":9003,") + ":9003"
	if _, err := b.background(b.load, "serve", "-tcp", "0.0.0.0:9001", "-source", "0.0.0.0:9002", "-udp", udp); err != nil {
		return err
	}
	return b.startProxies()
}

type key struct{ scenario, proxy string }

func (b *bench) measure() error {
	got, cpu := make(map[key][]float64), make(map[key][]float64)
	all := scenarios(b.span)
	for round := range b.rounds {
		for i := range all {
			s := &all[i]
			if s.load == nil || len(b.only) > 0 && !slices.Contains(b.only, strings.Fields(s.name)[0]) {
				continue
			}
			for j := range b.proxies {
				p := b.proxies[(j+round)%len(b.proxies)]
				if !p.serves(s.kind) {
					continue
				}
				before := p.cpu()
				r, err := b.ask(append(slices.Clone(s.load), "-to", p.address(s.kind))...)
				if err != nil {
					return fmt.Errorf("%s through %s: %w", s.name, p.name, err)
				}
				used := p.cpu() - before
				fmt.Fprintf(os.Stderr, "round %d %-15s %-14s done %d failed %d p50 %.0f p99 %.0f cpu %.2f\n", round+1, s.name, p.name, r.Done, r.Failed, r.P50, r.P99, used.Seconds())
				for k := i; k < len(all) && (k == i || all[k].load == nil); k++ {
					at := key{all[k].name, p.name}
					got[at] = append(got[at], all[k].value(r))
					cpu[at] = append(cpu[at], used.Seconds()*1e6/float64(max(1, r.Done)))
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
	}
	b.report(all, got, cpu)
	return nil
}

func (b *bench) ask(args ...string) (result, error) {
	var r result
	out, err := exec.Command(b.load, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return r, fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// report prints a table: the median of each with its spread, and the relay beside the better of the peers.
func (b *bench) report(all []scenario, got, cpu map[key][]float64) {
	fmt.Printf("| what | unit |")
	for _, p := range b.proxies {
		fmt.Printf(" %s |", p.name)
	}
	fmt.Printf(" relay : best peer | CPU: relay : best peer |\n|---|---|%s---|---|\n", strings.Repeat("---|", len(b.proxies)))
	for _, s := range all {
		if _, ok := got[key{s.name, b.proxies[0].name}]; !ok && !hasAny(got, s.name) {
			continue
		}
		fmt.Printf("| %s | %s |", s.name, s.unit)
		best, bestCPU := 0.0, 0.0
		for _, p := range b.proxies {
			v := got[key{s.name, p.name}]
			if len(v) == 0 {
				fmt.Print(" |")
				continue
			}
			m := median(v)
			fmt.Printf(" %.0f (%.0f–%.0f) |", m, slices.Min(v), slices.Max(v))
			if !p.peer {
				continue
			}
			if best == 0 || (m < best) == s.less && m != best {
				best = m
			}
			if c := median(cpu[key{s.name, p.name}]); bestCPU == 0 || c < bestCPU {
				bestCPU = c
			}
		}
		mine := got[key{s.name, "relay"}]
		if len(mine) == 0 || best == 0 {
			fmt.Println(" | |")
			continue
		}
		ratio := median(mine) / best
		if s.less {
			ratio = best / median(mine)
		}
		fmt.Printf(" %.2f | %.2f |\n", ratio, median(cpu[key{s.name, "relay"}])/bestCPU)
	}
}

func hasAny(got map[key][]float64, scenario string) bool {
	for k := range got {
		if k.scenario == scenario {
			return true
		}
	}
	return false
}

// cpuOf is the CPU time that a process has used, with all of its threads.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(after)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
