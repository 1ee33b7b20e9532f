// Command livecost measures what a live trace costs on a node of a big cluster, beside what the dump of its rules
// costs alone: CPU time (user and system, with the programs that are started) and wall time, interleaved, the median
// of the rounds. It makes a network namespace with the rules of test/scale, and serves the objects over HTTP. It needs
// root and iptables.
//
//	go run ./hack/livecost [-services 10000] [-endpoints 5] [-rounds 5] [-backend nft]
//
// With -watch it measures `audit --watch` there: for that long while nothing happens, then as long with a rule written
// each second.
//
//	go run ./hack/livecost -watch 2m [-services 10000] [-endpoints 5] [-backend nft]
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/test/scale"
)

func main() {
	services := flag.Int("services", 10000, "number of Services")
	endpoints := flag.Int("endpoints", 5, "endpoints of each")
	rounds := flag.Int("rounds", 5, "rounds of which the median counts")
	backend := flag.String("backend", "nft", "iptables backend: nft or legacy")
	profile := flag.Bool("keep", false, "keep the namespace and say how to trace in it")
	program := flag.String("program", "", "svcnet to measure; built when not given")
	watch := flag.Duration("watch", 0, "measure audit --watch instead, idle and busy for this long each")
	flag.Parse()
	if err := run(*services, *endpoints, *rounds, *backend, *program, *profile, *watch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// cost of one run of a command.
type cost struct{ cpu, wall time.Duration }

func run(services, endpoints, rounds int, backend, bin string, keep bool, watch time.Duration) error {
	dir, err := os.MkdirTemp("", "svcnet-livecost")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if bin == "" {
		if bin, err = build(dir); err != nil {
			return err
		}
	}
	netns := fmt.Sprintf("svcnet-cost-%d", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", netns).CombinedOutput(); err != nil {
		return fmt.Errorf("make a namespace: %w: %s", err, out)
	}
	defer func() { _ = exec.Command("ip", "netns", "del", netns).Run() }()
	inside := func(argv ...string) *exec.Cmd {
		c := exec.Command("nsenter", append([]string{"--net=/run/netns/" + netns}, argv...)...)
		c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
		return c
	}
	setup := "ip link set lo up; ip link add eth0 type veth peer name peer0; ip addr add 172.30.0.11/24 dev eth0; ip link set eth0 up; ip link set peer0 up; " +
		"ip route add default via 172.30.0.1; ip route add 10.128.0.0/9 dev eth0; sysctl -qw net.ipv4.ip_forward=1"
	if out, err := inside("sh", "-c", setup).CombinedOutput(); err != nil {
		return fmt.Errorf("set up: %w: %s", err, out)
	}
	restore := inside("iptables-"+backend+"-restore", "-c")
	restore.Stdin = bytes.NewReader(scale.AsWritten(scale.IPTablesSave(services, endpoints)))
	if out, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("load the rules: %w: %s", err, out)
	}
	host, err := serve(netns, scale.Objects(services, endpoints))
	if err != nil {
		return err
	}
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://%s'}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n", host)
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(config), 0o600); err != nil {
		return err
	}
	if watch > 0 {
		fmt.Printf("%d Services with %d endpoints, backend %s\n", services, endpoints, backend)
		return watchCost(inside, bin, backend, watch)
	}
	namespace, name := scale.Service(services / 2)
	if keep {
		fmt.Printf("nsenter --net=/run/netns/%s env KUBECONFIG=%s/kubeconfig %s trace svc/%s -n %s\nend with Enter\n", netns, dir, bin, name, namespace)
		_, _ = fmt.Scanln()
		return nil
	}
	things := []struct {
		name string
		argv []string
		all  []cost
	}{
		{name: "iptables-" + backend + "-save -c", argv: []string{"iptables-" + backend + "-save", "-c"}},
		{name: "trace, rules only (--no-api)", argv: []string{bin, "trace", "svc/" + name, "-n", namespace, "--no-api", "--node", "node-1"}},
		{name: "trace", argv: []string{bin, "trace", "svc/" + name, "-n", namespace, "--fail-on", "info"}},
		{name: "audit of all Services", argv: []string{bin, "audit", "--fail-on", "never"}},
	}
	for range rounds {
		for i := range things {
			c := inside(things[i].argv...)
			var said bytes.Buffer
			c.Stderr = &said
			begin := time.Now()
			// The namespace has no kube-proxy and no pods: what an audit cannot know of them is no failure here.
			if err := c.Run(); err != nil && c.ProcessState.ExitCode() != 4 {
				return fmt.Errorf("%s: %w: %s", things[i].name, err, said.String())
			}
			things[i].all = append(things[i].all, cost{c.ProcessState.UserTime() + c.ProcessState.SystemTime(), time.Since(begin)})
		}
	}
	unit := median(things[0].all)
	fmt.Printf("%d Services with %d endpoints, backend %s, median of %d rounds\n", services, endpoints, backend, rounds)
	for _, t := range things {
		m := median(t.all)
		fmt.Printf("%-32s CPU %6.2f s (%.2f ×)   wall %6.2f s (%.2f ×)\n", t.name, m.cpu.Seconds(), float64(m.cpu)/float64(unit.cpu), m.wall.Seconds(), float64(m.wall)/float64(unit.wall))
	}
	return nil
}

// build makes the program in a folder.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "svcnet")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./cmd/kubectl-svcnet").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return bin, nil
}

func median(all []cost) cost {
	var cpu, wall []time.Duration
	for _, c := range all {
		cpu, wall = append(cpu, c.cpu), append(wall, c.wall)
	}
	slices.Sort(cpu)
	slices.Sort(wall)
	return cost{cpu[len(cpu)/2], wall[len(wall)/2]}
}

var listKinds = map[string]string{"nodes": "NodeList", "services": "ServiceList", "endpointslices": "EndpointSliceList", "pods": "PodList"}

// serve answers lists of objects, a page at a time, on an address of the namespace's loopback.
func serve(netns string, objects map[string][]json.RawMessage) (string, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		listener, err := func() (net.Listener, error) {
			f, err := os.Open("/run/netns/" + netns)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, err
			}
			return net.Listen("tcp", "127.0.0.1:0")
		}()
		made <- result{listener, err}
	}()
	r := <-made
	if r.err != nil {
		return "", fmt.Errorf("serve objects: %w", r.err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("watch") != "" {
			watched(w, q)
			return
		}
		resource := q.URL.Path[strings.LastIndexByte(q.URL.Path, '/')+1:]
		all := objects[resource]
		from, _ := strconv.Atoi(q.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(q.URL.Query().Get("limit"))
		to, next := len(all), ""
		if limit > 0 && from+limit < len(all) {
			to, next = from+limit, strconv.Itoa(from+limit)
		}
		w.Header().Set("Content-Type", "application/json")
		version := "v1"
		if resource == "endpointslices" {
			version = "discovery.k8s.io/v1"
		}
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1","continue":%q},"items":[`, listKinds[resource], version, next)
		for i, item := range all[from:to] {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			_, _ = w.Write(item)
		}
		fmt.Fprint(w, "]}")
	})}
	go func() { _ = server.Serve(r.listener) }()
	return r.listener.Addr().String(), nil
}
