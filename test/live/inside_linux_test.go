package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// sidecarUser is the user of Istio's sidecar.
const sidecarUser = 1337

// istioTCP are the rules that istio-init writes into a pod (istio-iptables, REDIRECT, all ports), for iptables-restore.
// self is the loopback address, other the one that the sidecar itself calls the application from.
func istioTCP(self, other string) string {
	return `*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_REDIRECT - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -o lo -s ` + other + ` -j RETURN
-A ISTIO_OUTPUT -o lo ! -d ` + self + ` -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -o lo ! -d ` + self + ` -p tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d ` + self + ` -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
COMMIT
`
}

// istioDNS are those that Istio adds where it captures DNS queries to the resolver of the pod.
func istioDNS(resolver string) string {
	return `*nat
:ISTIO_OUTPUT_DNS - [0:0]
-A OUTPUT -p udp -j ISTIO_OUTPUT_DNS
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -d ` + resolver + ` -j REDIRECT --to-ports 15053
COMMIT
*raw
:ISTIO_OUTPUT_DNS - [0:0]
:ISTIO_INBOUND - [0:0]
-A OUTPUT -j ISTIO_OUTPUT_DNS
-A PREROUTING -j ISTIO_INBOUND
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --gid-owner 1337 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp --sport 15053 -m owner --gid-owner 1337 -j CT --zone 2
-A ISTIO_OUTPUT_DNS -p udp --dport 53 -d ` + resolver + ` -j CT --zone 2
-A ISTIO_INBOUND -p udp --sport 53 -s ` + resolver + ` -j CT --zone 1
COMMIT
`
}

// write adds rules to a pod's own network namespace.
func (s *stage) write(t *testing.T, pod, program, rules string) {
	t.Helper()
	if _, err := s.pods[pod].Netns().Run(t.Context(), rules, "xtables-nft-multi", program+"-restore", "--noflush"); err != nil {
		t.Fatal(err)
	}
}

// mesh makes a pod one of Istio's, with a server in the place of the sidecar.
func (s *stage) mesh(t *testing.T, pod string) {
	t.Helper()
	s.write(t, pod, "iptables", istioTCP("127.0.0.1/32", "127.0.0.6/32"))
	s.write(t, pod, "ip6tables", istioTCP("::1/128", "::6/128"))
	for _, port := range []int{15001, 15006} {
		if _, err := s.pods[pod].Serve(corev1.ProtocolTCP, port); err != nil {
			t.Fatal(err)
		}
	}
}

// inPod runs f in a pod as the user of its sidecar. Sockets that f opens are that user's.
func (s *stage) inPod(t *testing.T, pod string, f func() error) {
	t.Helper()
	err := s.pods[pod].Netns().Do(func() error {
		// Of this thread alone, which ends with f.
		if err := errors.Join(unix.Setfsgid(sidecarUser), unix.Setfsuid(sidecarUser)); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// backendFor makes a Service with one backend that leads to a target port of it.
func (s *stage) backendFor(t *testing.T, name, pod string, target int32) {
	t.Helper()
	svc := service(name, []port{{name: "web", proto: corev1.ProtocolTCP, port: 80, target: target}})
	objects := []any{svc}
	for _, sl := range slices4and6(svc, "", ready(pod)) {
		objects = append(objects, discoveryv1.EndpointSlice(sl))
	}
	if err := s.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

// document is what a trace of n1 says. It ends with 0 and finds nothing wrong with the node, whatever pods do.
func (s *stage) document(t *testing.T, args ...string) *report.Trace {
	t.Helper()
	out, said, code := s.run(t, s.n1, append([]string{"trace", "-n", "store", "-o", "json"}, args...)...)
	var d report.Trace
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("exit %d: %v: %s", code, err, said)
	}
	ofNode := slices.DeleteFunc(slices.Clone(d.Findings), func(f report.Finding) bool { return f.ID == "nothing-listens" })
	if code != 0 || len(ofNode) > 0 || len(d.Paths) == 0 {
		t.Errorf("exit %d, %d paths, findings %+v: %s", code, len(d.Paths), ofNode, said)
	}
	return &d
}

// dial is a connection to the frontend of a path.
func (s *stage) dial(t *testing.T, from string, p *report.Path) lab.Answer {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(p.Frontend.Address), uint16(p.Frontend.Port))
	a, err := s.Dial(t.Context(), s.pods[from], corev1.Protocol(p.Frontend.Protocol), to, lab.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// hopsIn are the chains of the hops inside a pod.
func hopsIn(p *report.Path, pod string) []string {
	var out []string
	all := slices.Clone(p.Hops)
	for i := range p.Backends {
		all = append(all, p.Backends[i].Hops...)
	}
	for _, h := range all {
		if h.Pod == pod {
			out = append(out, h.Chain)
		}
	}
	return out
}

func says(texts []string, words ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s, w) })
	})
}

// decoy is a namespace with the addresses of pods that is none of theirs: private addresses come up more than once on
// a machine with several nodes, and namespaces outlive pods. Its name is looked at before the lab's.
func decoy(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("a%d-decoy", os.Getpid())
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	for _, pod := range []string{"client-1", "a1", "a2"} {
		p := podNamed(pod)
		ip("-n", name, "addr", "add", p.four+"/32", "dev", "lo")
		ip("-n", name, "addr", "add", p.six+"/128", "dev", "lo")
	}
}

// TestInside takes pods into a mesh and gives them rules of their own, and holds what svcnet says of them beside what
// connections meet.
func TestInside(t *testing.T) {
	s := set(t, labtest.Bring(t, lab.Options{Name: fmt.Sprintf("i%d", os.Getpid()), NoProxy: true}))
	decoy(t)
	s.mesh(t, "client-1")
	s.mesh(t, "a1")
	s.backendFor(t, "nobody", "a2", 7777)
	s.backendFor(t, "dropped", "a2", 7778)
	s.backendFor(t, "refused", "a2", 7779)
	for _, program := range []string{"iptables", "ip6tables"} {
		s.write(t, "a2", program, "*filter\n-A INPUT -p tcp --dport 7778 -j DROP\n-A INPUT -p tcp --dport 7779 -j REJECT --reject-with tcp-reset\nCOMMIT\n")
	}
	if err := s.WaitSynced(t.Context(), s.n1); err != nil {
		t.Fatal(err)
	}

	t.Run("a sidecar takes what the application sends", func(t *testing.T) {
		d := s.document(t, "svc/many", "--from", "pod/client-1")
		if len(d.Paths) != 2 {
			t.Errorf("%d paths, want one of each family", len(d.Paths))
		}
		for i := range d.Paths {
			p := &d.Paths[i]
			if p.Result != report.ResultRedirect || p.Probability != 1 || len(p.Uncertain) > 0 || p.Intended != nil {
				t.Errorf("%s: %s %v %v", p.Frontend.Address, p.Result, p.Probability, p.Uncertain)
			}
			if chains := hopsIn(p, "store/client-1"); !slices.Contains(chains, "ISTIO_REDIRECT") {
				t.Errorf("%s: chains inside the pod: %q", p.Frontend.Address, chains)
			}
			if !says(p.NotEvaluated, "the proxy in pod store/client-1") || !says(p.NotEvaluated, "sidecar", "1337") {
				t.Errorf("%s: not evaluated: %q", p.Frontend.Address, p.NotEvaluated)
			}
			if len(p.Backends) != 1 || p.Backends[0].Inside == nil || p.Backends[0].Inside.Result != report.ResultRedirect {
				t.Errorf("%s: backends: %+v", p.Frontend.Address, p.Backends)
			}
			if a := s.dial(t, "client-1", p); a.Pod != "client-1" || a.Port != 15001 {
				t.Errorf("%s: %s", p.Frontend.Address, a)
			}
		}
	})

	t.Run("and lets pass what it sends itself", func(t *testing.T) {
		for _, p := range s.document(t, "svc/one", "--from", "pod/client-1").Paths {
			s.inPod(t, "client-1", func() error {
				c, err := net.Dial("tcp", net.JoinHostPort(p.Frontend.Address, fmt.Sprint(p.Frontend.Port)))
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				var g struct{ Pod string }
				if err := json.NewDecoder(c).Decode(&g); err != nil {
					return err
				}
				if g.Pod != "a1" {
					t.Errorf("%s: answered by %s", p.Frontend.Address, g.Pod)
				}
				return nil
			})
		}
	})

	t.Run("a sidecar takes what reaches a backend", func(t *testing.T) {
		for _, p := range s.document(t, "svc/one", "--from", "pod/a2", "--pod", "store/a1").Paths {
			if p.Result != report.ResultDNAT || len(p.Backends) != 1 {
				t.Fatalf("%s, backends %+v", p.Result, p.Backends)
			}
			in := p.Backends[0].Inside
			if in == nil || in.Result != report.ResultRedirect || in.Pod != "store/a1" || !strings.Contains(in.Text, "15006") {
				t.Errorf("%s: inside: %+v", p.Frontend.Address, in)
			} else if n := len(in.Hops); n == 0 || in.Hops[n-1].Chain != "ISTIO_IN_REDIRECT" || in.Hops[n-1].Pod != "store/a1" {
				t.Errorf("%s: hops: %+v", p.Frontend.Address, in.Hops)
			}
			if a := s.dial(t, "a2", &p); a.Pod != "a1" || a.Port != 15006 {
				t.Errorf("%s: %s", p.Frontend.Address, a)
			}
		}
	})

	t.Run("a mesh that was not looked into", func(t *testing.T) {
		if err := s.Patch(t.Context(), "Pod", "store", "a1", "", `{"metadata":{"annotations":{"sidecar.istio.io/status":"{\"containers\":[\"istio-proxy\"]}"}}}`); err != nil {
			t.Fatal(err)
		}
		for _, from := range [][]string{{"--from", "pod/a2"}, nil} {
			for _, p := range s.document(t, append([]string{"svc/one"}, from...)...).Paths {
				inside := func(b report.Backend) bool { return b.Inside != nil }
				if !says(p.NotEvaluated, "store/a1", "Istio", "--pod store/a1") || slices.ContainsFunc(p.Backends, inside) {
					t.Errorf("%s from %s: not evaluated: %q, backends: %+v", p.Frontend.Address, p.SourceClass, p.NotEvaluated, p.Backends)
				}
			}
		}
	})

	for _, c := range []struct {
		service string
		inside  report.Result
		outcome lab.Outcome
	}{
		{"nobody", report.ResultNoMatch, lab.Refused},
		{"dropped", report.ResultDrop, lab.TimedOut},
		{"refused", report.ResultReject, lab.Refused},
	} {
		t.Run("a backend where "+c.service, func(t *testing.T) {
			for _, p := range s.document(t, "svc/"+c.service, "--from", "local-pod", "--pod", "store/a2").Paths {
				if len(p.Backends) != 1 || p.Backends[0].Inside == nil || p.Backends[0].Inside.Result != c.inside {
					t.Errorf("%s: backends %+v", p.Frontend.Address, p.Backends)
				}
				o := lab.DialOptions{}
				if c.outcome == lab.TimedOut {
					o.Timeout = time.Second
				}
				to := netip.AddrPortFrom(netip.MustParseAddr(p.Frontend.Address), uint16(p.Frontend.Port))
				if a, err := s.Dial(t.Context(), s.pods["client-2"], corev1.ProtocolTCP, to, o); err != nil || a.Outcome != c.outcome {
					t.Errorf("%s: %s, %v", p.Frontend.Address, a, err)
				}
			}
		})
	}

	t.Run("a sidecar takes DNS queries", func(t *testing.T) {
		for _, p := range s.document(t, "svc/udp", "--from", "pod/client-1").Paths {
			if p.Result != report.ResultDNAT {
				t.Errorf("before: %s: %s", p.Frontend.Address, p.Result)
			}
			program, width := "iptables", "/32"
			if strings.Contains(p.Frontend.Address, ":") {
				program, width = "ip6tables", "/128"
			}
			s.write(t, "client-1", program, istioDNS(p.Frontend.Address+width))
		}
		s.resolver(t, "client-1")
		for _, p := range s.document(t, "svc/udp", "--from", "pod/client-1").Paths {
			if p.Result != report.ResultRedirect || len(p.Uncertain) > 0 || len(p.Backends) != 1 || p.Backends[0].Port != 15053 {
				t.Errorf("%s: %s %v, backends %+v", p.Frontend.Address, p.Result, p.Uncertain, p.Backends)
			}
			if a := s.dial(t, "client-1", &p); a.Port != 15053 {
				t.Errorf("%s: %s", p.Frontend.Address, a)
			}
		}
	})

	t.Run("a pod sends elsewhere by itself", func(t *testing.T) {
		var one, many []report.Path
		one, many = s.document(t, "svc/one", "--from", "pod/a2").Paths, s.document(t, "svc/many", "--from", "pod/a2").Paths
		for i := range one {
			program, to := "iptables", many[i].Frontend.Address+":80"
			if strings.Contains(one[i].Frontend.Address, ":") {
				program, to = "ip6tables", "["+many[i].Frontend.Address+"]:80"
			}
			s.write(t, "a2", program, fmt.Sprintf("*nat\n-A OUTPUT -d %s -p tcp --dport 80 -j DNAT --to-destination %s\nCOMMIT\n", one[i].Frontend.Address, to))
		}
		for _, p := range s.document(t, "svc/one", "--from", "pod/a2").Paths {
			if p.Result != report.ResultDNAT || len(p.Backends) != 4 || len(hopsIn(&p, "store/a2")) == 0 {
				t.Errorf("%s: %s, backends %+v", p.Frontend.Address, p.Result, p.Backends)
			}
			reached := map[string]bool{}
			for range 40 {
				reached[s.dial(t, "a2", &p).Pod] = true
			}
			if len(reached) != 4 {
				t.Errorf("%s: answered by %v", p.Frontend.Address, reached)
			}
		}
	})

	t.Run("a pod of the node's own network", func(t *testing.T) {
		d := s.document(t, "svc/many", "--from", "pod/host-1")
		var said []string
		for _, src := range d.Sources {
			said = append(said, src.Error)
		}
		if !says(said, "store/host-1", "it uses the node's", "hostNetwork") {
			t.Errorf("sources say %q", said)
		}
		for _, p := range d.Paths {
			if p.Result != report.ResultDNAT || len(p.Uncertain) > 0 || p.Origin != "node" {
				t.Errorf("%s from %s %v", p.Result, p.Origin, p.Uncertain)
			}
		}
	})

	t.Run("a pod of another node", func(t *testing.T) {
		out, said, code := s.run(t, s.n1, "trace", "svc/many", "-n", "store", "--from", "pod/client-2")
		if out != "" || code != 1 || strings.Count(said, "\n") != 1 || !strings.Contains(said, "store/client-2") {
			t.Errorf("exit %d: %s%s", code, out, said)
		}
		// As a backend's pod it is one more thing that is not known.
		d := s.document(t, "svc/many", "--from", "pod/a2", "--pod", "store/c1")
		if !slices.ContainsFunc(d.Sources, func(src report.Source) bool {
			return src.Status == "not-collected" && says([]string{src.Error}, "store/c1", "no pod of this node", "run svcnet on the node")
		}) {
			t.Errorf("sources: %+v", d.Sources)
		}
	})

	t.Run("live and bundle say the same", func(t *testing.T) {
		bundle := filepath.Join(t.TempDir(), "n1.tar.gz")
		pods := []string{"--pod", "store/a1", "--pod", "store/client-1"}
		if _, said, code := s.run(t, s.n1, append([]string{"collect", "-o", bundle}, pods...)...); code != 0 {
			t.Fatalf("collect: exit %d: %s", code, said)
		}
		for _, q := range [][]string{{"svc/one", "--from", "pod/client-1"}, {"svc/one"}} {
			for _, format := range []string{"json", "tree", "wide"} {
				q := append([]string{"trace", "-n", "store", "-o", format}, q...)
				live, said, code := s.run(t, s.n1, append(slices.Clone(q), pods...)...)
				later, saidLater, codeLater := s.run(t, s.n1, append(slices.Clone(q), "-f", bundle)...)
				if live != later || code != 0 || codeLater != 0 {
					t.Errorf("%s: exit %d and %d: %s %s\n%s\n%s", strings.Join(q, " "), code, codeLater, said, saidLater, live, later)
				}
			}
		}
	})
}

// resolver answers DNS queries in the place of a pod's sidecar, as its user: conntrack zones go by that. The answer is
// that of a server of the lab.
func (s *stage) resolver(t *testing.T, pod string) {
	t.Helper()
	for _, self := range []string{"127.0.0.1", "::1"} {
		s.inPod(t, pod, func() error {
			// Istio's listens there, which is where the rules lead: answers must come from that very address.
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(self), 15053)))
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				b := make([]byte, 512)
				for {
					_, from, err := c.ReadFromUDPAddrPort(b)
					if err != nil {
						return
					}
					_, _ = c.WriteToUDPAddrPort(fmt.Appendf(nil, `{"pod":%q,"port":15053,"client":%q,"server":%q}`+"\n", pod, from, c.LocalAddr()), from)
				}
			}()
			return nil
		})
	}
}
