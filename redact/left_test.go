package redact

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/objects"
)

// testKey is the key of all tests: what they see is the same every time.
var testKey = []byte("a key for tests that nobody else uses")

// folders are the nodes that tests redact: every case, and every recorded node.
func folders(t *testing.T) []string {
	t.Helper()
	var out []string
	for pattern, least := range map[string]int{
		"../test/e2e/testdata/cases/*": 40, "../test/e2e/testdata/nodes/*": 2, "../test/e2e/testdata/oldmodes/*": 3,
		"../test/recorded/testdata/*": 16, "../cmd/demo/node-1": 1, "../test/e2e/testdata/othermodes/*": 1,
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = slices.DeleteFunc(found, func(f string) bool { i, err := os.Stat(f); return err != nil || !i.IsDir() })
		if len(found) < least {
			t.Fatalf("%s: %d folders, want %d or more", pattern, len(found), least)
		}
		out = append(out, found...)
	}
	slices.Sort(out)
	return out
}

func load(t testing.TB, folder string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Load([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Evidence = slices.DeleteFunc(s.Evidence, func(e snapshot.Evidence) bool { return strings.HasSuffix(e.File, "expected.json") })
	return s
}

// mayStay are names that are Kubernetes' own, or a word that a format or a message of kube-proxy has too: a node
// called "node" would hide in them.
var mayStay = map[string]bool{
	"default": true, "kubernetes": true, "kube-system": true, "kube-proxy": true, "kube-dns": true, "https": true, "http": true,
	"dns": true, "dns-tcp": true, "metrics": true, "grpc": true, "linux": true, "windows": true, "true": true, "auto": true,
	"coredns": true, "coredns-0": true, "coredns-1": true, "localhost": true, "sctp": true, "tcp": true, "udp": true, "amd64": true, "Auto": true,
	"endpointslice-controller.k8s.io": true, "endpointslicemirroring-controller.k8s.io": true,
}

// formatWords are words of formats: names among them are looked for where only a name can stand.
var formatWords = set(strings.Fields(words)...)

func isFormatWord(w string) bool { return formatWords[strings.ToLower(w)] || len(w) == 1 }

// namesOf are the names in the objects of a snapshot, read by the decoder of objects and not by this package.
func namesOf(s *snapshot.Snapshot) map[string]bool {
	set := &objects.Set{}
	for _, e := range s.Of(snapshot.Objects) {
		objects.Decode(set, e.Data, e.File)
	}
	out := map[string]bool{}
	add := func(names ...string) {
		for _, n := range names {
			if n != "" && !mayStay[n] && !plainNumber.MatchString(n) {
				out[n] = true
			}
		}
	}
	labels := func(maps ...map[string]string) {
		for _, m := range maps {
			for k, v := range m {
				add(v)
				if !labelKeys[k] && !strings.Contains(k, "/") {
					add(k)
				}
			}
		}
	}
	for _, o := range set.Services {
		add(o.Name, o.Namespace, string(o.UID), o.Spec.ExternalName)
		labels(o.Labels, o.Spec.Selector, o.Annotations)
		for _, p := range o.Spec.Ports {
			add(p.Name)
		}
	}
	for _, o := range set.EndpointSlices {
		add(o.Name, o.Namespace, string(o.UID))
		labels(o.Labels, o.Annotations)
		for _, e := range o.Endpoints {
			if e.NodeName != nil {
				add(*e.NodeName)
			}
			if e.Zone != nil {
				add(*e.Zone)
			}
			if e.Hostname != nil {
				add(*e.Hostname)
			}
			if e.TargetRef != nil {
				add(e.TargetRef.Name, e.TargetRef.Namespace)
			}
		}
	}
	for _, o := range set.Endpoints {
		add(o.Name, o.Namespace)
		labels(o.Labels)
	}
	for _, o := range set.Pods {
		add(o.Name, o.Namespace, string(o.UID), o.Spec.NodeName, o.Spec.Hostname, o.Spec.ServiceAccountName)
		labels(o.Labels, o.Annotations, o.Spec.NodeSelector)
		for _, c := range o.Spec.Containers {
			add(c.Name)
			if !strings.Contains(c.Image, "registry.k8s.io/kube-proxy") {
				add(c.Image)
			}
		}
	}
	for _, o := range set.Nodes {
		add(o.Name, string(o.UID), o.Status.NodeInfo.MachineID, o.Status.NodeInfo.SystemUUID, o.Status.NodeInfo.BootID)
		labels(o.Labels, o.Annotations)
		for _, a := range o.Status.Addresses {
			if _, err := netip.ParseAddr(a.Address); err != nil {
				add(a.Address)
			}
		}
	}
	for _, o := range set.Namespaces {
		add(o.Name)
	}
	add(s.Node)
	return out
}

var (
	anyIPv4 = regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){3}`)
	anyIPv6 = regexp.MustCompile(`[0-9a-fA-F]*(?::[0-9a-fA-F]*){2,}`)
	anyMAC  = regexp.MustCompile(`\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b`)
	bytesOf = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]|[A-Za-z0-9]`)
)

// stays are addresses that mean the same everywhere, and ranges that are somebody's whole private space.
func stays(a netip.Addr) bool {
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Is4In6() {
		return true
	}
	for _, p := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "fe80::/64", "::/96"} {
		if netip.MustParsePrefix(p).Contains(a) {
			return true
		}
	}
	return slices.Contains([]string{"10.0.0.0", "172.16.0.0", "192.168.0.0", "100.64.0.0", "128.0.0.0", "192.0.0.0", "198.18.0.0", "64.0.0.0", "fc00::", "fd00::", "2000::", "2001:db8::"}, a.String())
}

func addressesIn(text string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, re := range []*regexp.Regexp{anyIPv4, anyIPv6} {
		for _, f := range re.FindAllString(text, -1) {
			if anyMAC.MatchString(f) && len(f) == 17 {
				continue
			}
			for _, f := range []string{f, strings.TrimSuffix(f, ":"), strings.TrimPrefix(f, ":")} {
				if a, err := netip.ParseAddr(f); err == nil && !stays(a) {
					out[a] = true
				}
			}
		}
	}
	return out
}

// TestNothingIsLeft redacts every node of the fixtures and looks for the names of its objects, and for everything that
// looks like an address in any of its files, in every byte of the result.
func TestNothingIsLeft(t *testing.T) {
	for _, folder := range folders(t) {
		t.Run(strings.TrimPrefix(folder, "../"), func(t *testing.T) {
			s := load(t, folder)
			out, err := Redact(s, testKey)
			if err != nil {
				t.Fatal(err)
			}
			names := namesOf(s)
			old := map[netip.Addr]bool{}
			macs := map[string]bool{}
			for _, e := range s.Evidence {
				for a := range addressesIn(string(e.Data)) {
					old[a] = true
				}
				for _, m := range anyMAC.FindAllString(string(e.Data), -1) {
					raw, _ := hex.DecodeString(strings.ReplaceAll(m, ":", ""))
					if len(raw) == 6 && !known[[6]byte(raw)] && raw[0]&1 == 0 {
						macs[strings.ToLower(m)] = true
					}
				}
			}
			if len(old) == 0 {
				t.Fatal("no addresses: the test does not look")
			}
			lost := map[snapshot.Format]int{}
			for _, e := range s.Evidence {
				if len(e.Data) > 0 && decisionOf(e.Format).rewrite != nil {
					lost[e.Format]++
				}
			}
			for _, e := range out.Evidence {
				if len(e.Data) > 0 {
					lost[e.Format]--
				}
			}
			for f, n := range lost {
				if n != 0 {
					t.Errorf("%d pieces of %s were left out", n, f)
				}
			}
			for _, e := range out.Of(snapshot.NFTNetlink) {
				leftInBytes(t, e.Data, names, old)
			}
			for _, e := range out.Evidence {
				text := e.File + "\n" + e.Error + "\n" + e.Note + "\n" + string(e.Data)
				for a := range addressesIn(text) {
					if old[a] {
						t.Errorf("%s: address %s is left: %s", e.File, a, lineWith(text, a.String()))
					}
				}
				for _, m := range anyMAC.FindAllString(text, -1) {
					if macs[strings.ToLower(m)] {
						t.Errorf("%s: hardware address %s is left", e.File, m)
					}
				}
				seen := map[string]bool{}
				plain := anyMAC.ReplaceAllString(text, "") // whose digits are no names
				for _, w := range bytesOf.FindAllString(plain, -1) {
					for _, w := range append(strings.Split(w, "."), w) {
						if names[w] && !seen[w] && !isFormatWord(w) {
							seen[w] = true
							t.Errorf("%s: name %s is left: %s", e.File, w, lineWith(text, w))
						}
					}
				}
				// Names that are words of formats too: where only a name can stand.
				for n := range names {
					if strings.Contains(text, n) && isFormatWord(n) && regexp.MustCompile(`(?m)((\b|^)(name|namespace|nodeName|serviceName|kubernetes\.io/service-name): "?`+regexp.QuoteMeta(n)+`"?$|"(name|namespace|nodeName)": "`+regexp.QuoteMeta(n)+`"|[a-z0-9-]/`+regexp.QuoteMeta(n)+`:[a-z]|\b`+regexp.QuoteMeta(n)+`/[a-z0-9-]+:[a-z])`).MatchString(text) {
						t.Errorf("%s: name %s is left: %s", e.File, n, lineWith(text, n))
					}
				}
			}
		})
	}
}

// leftInBytes looks for names and addresses in messages of the kernel, where nothing stands between words.
func leftInBytes(t *testing.T, data []byte, names map[string]bool, old map[netip.Addr]bool) {
	t.Helper()
	for n := range names {
		if len(n) > 4 && !isFormatWord(n) && bytes.Contains(data, []byte(n)) {
			t.Errorf("name %s is left in netlink messages", n)
		}
	}
	for a := range old {
		if b := a.AsSlice(); !bytes.HasSuffix(b, []byte{0, 0}) && bytes.Contains(data, b) {
			t.Errorf("address %s is left in netlink messages", a)
		}
	}
}

func lineWith(text, what string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, what) {
			return strings.TrimSpace(line[:min(len(line), 200)])
		}
	}
	return ""
}
