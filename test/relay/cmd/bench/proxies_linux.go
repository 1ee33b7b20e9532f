package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/repair/proxy/relay"
)

// proxy is one of those that are compared.
type proxy struct {
	name string
	// peer: the relay is measured against it.
	peer bool
	port int // of answers; source and datagrams follow
	udp  bool
	main *exec.Cmd
}

func (p *proxy) serves(kind int) bool { return kind != datagrams || p.udp }

func (p *proxy) address(kind int) string { return fmt.Sprintf("127.0.0.1:%d", p.port+kind) }

// cpu is what the proxy has used, with its children (nginx has its workers there).
func (p *proxy) cpu() time.Duration {
	if p.main == nil {
		return 0
	}
	pid := p.main.Process.Pid
	sum := cpuOf(pid)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return sum
	}
	for _, f := range strings.Fields(string(children)) {
		if child, err := strconv.Atoi(f); err == nil {
			sum += cpuOf(child)
		}
	}
	return sum
}

func (b *bench) startProxies() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	relayArgs := []string{self, "relay", "7000"}
	if b.profile != "" {
		relayArgs = append(relayArgs, b.profile)
	}
	all := []struct {
		proxy
		argv func(p *proxy) ([]string, error)
	}{
		{proxy{name: "relay", port: 7000, udp: true}, func(*proxy) ([]string, error) { return relayArgs, nil }},
		{proxy{name: "go-copy", port: 7010}, func(*proxy) ([]string, error) { return []string{self, "copy", "7010"}, nil }},
		{proxy{name: "haproxy", port: 7020, peer: true}, func(p *proxy) ([]string, error) { return b.haproxy(p, "") }},
		{proxy{name: "haproxy-splice", port: 7030, peer: true}, func(p *proxy) ([]string, error) {
			return b.haproxy(p, "option splice-request\n  option splice-response")
		}},
		{proxy{name: "nginx", port: 7040, peer: true, udp: true}, func(p *proxy) ([]string, error) { return b.nginx(p, "") }},
		{proxy{name: "nginx-64k", port: 7050, peer: true, udp: true}, func(p *proxy) ([]string, error) { return b.nginx(p, "proxy_buffer_size 64k;") }},
		{proxy{name: "direct", port: 9001, udp: true}, nil},
	}
	for i := range all {
		p := &all[i].proxy
		if len(b.some) > 0 && !slices.Contains(b.some, p.name) {
			continue
		}
		if all[i].argv != nil {
			argv, err := all[i].argv(p)
			if err != nil {
				return err
			}
			if p.main, err = b.background(argv...); err != nil {
				return fmt.Errorf("start %s: %w", p.name, err)
			}
		}
		if err := answersAt(p.address(answers)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.proxies = append(b.proxies, p)
	}
	return nil
}

// answersAt waits until there is an answer.
func answersAt(address string) error {
	var last error
	for range 50 {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			defer shut(c)
			_ = c.SetDeadline(time.Now().Add(3 * time.Second))
			_, _ = c.Write([]byte("x"))
			if _, err = io.ReadFull(c, make([]byte, 1)); err == nil {
				return nil
			}
		}
		last = err
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("does not answer: %w", last)
}

func (b *bench) haproxy(p *proxy, options string) ([]string, error) {
	var s strings.Builder
	fmt.Fprintf(&s, "global\n  nbthread 2\n  maxconn 8000\n  maxpipes 256\ndefaults\n  mode tcp\n  %s\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  balance roundrobin\n", options)
	for kind, port := range []int{9001, 9002} {
		fmt.Fprintf(&s, "listen l%d\n  bind 127.0.0.1:%d backlog 4096\n", kind, p.port+kind)
		for i, addr := range backends {
			fmt.Fprintf(&s, "  server s%d %s:%d\n", i, addr, port)
		}
	}
	file := filepath.Join(b.dir, p.name+".cfg")
	if err := os.WriteFile(file, []byte(s.String()), 0o644); err != nil {
		return nil, err
	}
	return []string{"haproxy", "-db", "-f", file}, nil
}

func (b *bench) nginx(p *proxy, options string) ([]string, error) {
	var s strings.Builder
	fmt.Fprintf(&s, "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\nuser root;\nworker_processes 2;\nworker_rlimit_nofile 20000;\ndaemon off;\npid %s/%s.pid;\nerror_log stderr crit;\nevents { worker_connections 19000; multi_accept on; }\nstream {\n  access_log off;\n", b.dir, p.name)
	for kind, port := range []int{9001, 9002, 9003} {
		fmt.Fprintf(&s, "  upstream u%d {\n", kind)
		for _, addr := range backends {
			fmt.Fprintf(&s, "    server %s:%d;\n", addr, port)
		}
		listen, more := "backlog=4096 reuseport", ""
		if kind == datagrams {
			listen, more = "udp reuseport", "proxy_responses 1; proxy_timeout 30s;"
		}
		fmt.Fprintf(&s, "  }\n  server { listen 127.0.0.1:%d %s; proxy_pass u%d; tcp_nodelay on; %s %s }\n", p.port+kind, listen, kind, options, more)
	}
	s.WriteString("}\n")
	file := filepath.Join(b.dir, p.name+".conf")
	if err := os.WriteFile(file, []byte(s.String()), 0o644); err != nil {
		return nil, err
	}
	return []string{"nginx", "-c", file}, nil
}

// serveRelay is the relay with the three addresses that every proxy has.
func serveRelay(args []string) error {
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if len(args) > 1 {
		f, err := os.Create(args[1])
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r, err := relay.New(relay.Options{Log: func(s string) { fmt.Fprintln(os.Stderr, s) }})
	if err != nil {
		return err
	}
	defer r.Close()
	var w relay.Want
	for kind, to := range []int{9001, 9002, 9003} {
		protocol := "TCP"
		if kind == datagrams {
			protocol = "UDP"
		}
		sp := &intent.ServicePort{Namespace: "bench", Name: fmt.Sprintf("s%d", kind), Family: 4, Protocol: protocol, Port: port + kind,
			Frontends: []intent.Frontend{{Kind: intent.ClusterIP, Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: port + kind}}}
		for i, addr := range backends {
			sp.Endpoints = append(sp.Endpoints, intent.Endpoint{Addr: netip.MustParseAddr(addr), Port: to, Ready: true, Serving: true})
			sp.Cluster, sp.Usable = append(sp.Cluster, i), append(sp.Usable, i)
		}
		w.Ports = append(w.Ports, sp)
	}
	if unserved, err := r.Update(w); err != nil || len(unserved) > 0 {
		return fmt.Errorf("update: %w %v", err, unserved)
	}
	return wait()
}

// serveCopy is what Go does without more ado: a goroutine for each direction, io.Copy (which splices).
func serveCopy(args []string) error {
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for kind, to := range []int{9001, 9002} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+kind))
		if err != nil {
			return err
		}
		go func() {
			for n := 0; ; n++ {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func(n int) {
					defer shut(c)
					up, err := net.Dial("tcp", net.JoinHostPort(backends[n%len(backends)], strconv.Itoa(to)))
					if err != nil {
						return
					}
					defer shut(up)
					go func() {
						_, _ = io.Copy(up, c)
						_ = up.(*net.TCPConn).CloseWrite()
					}()
					_, _ = io.Copy(c, up)
					_ = c.(*net.TCPConn).CloseWrite()
				}(n)
			}
		}()
	}
	return wait()
}

// shut closes what nothing is lost with.
func shut(c io.Closer) { c.Close() }

// wait returns when the program is told to end.
func wait() error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	<-end
	return nil
}
