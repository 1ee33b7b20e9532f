package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The kernel and nft are asked about rulesets that nft loaded: what is read by netlink must be printed as nft prints it.

// inNamespace runs a test on a thread of its own in a fresh network namespace, which ends with the thread.
func inNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	t.Run("namespace", func(t *testing.T) {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine of this subtest
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Skipf("no network namespace can be made: %v", err)
		}
		test(t)
	})
}

// nftCommand runs nft in the thread's namespace.
func nftCommand(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command("nft", args...)
	c.Stdin = strings.NewReader(input)
	c.Env = append(os.Environ(), "TZ=UTC")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return out.String(), nil
}

// kernelSocket asks nf_tables.
type kernelSocket struct {
	fd  int
	seq uint32
	buf []byte
}

func openKernelSocket(t *testing.T) *kernelSocket {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &kernelSocket{fd: fd, buf: make([]byte, 1<<17)}
}

// ask sends a request and returns the messages of the answer as they came.
func (k *kernelSocket) ask(t *testing.T, kind uint16, family byte, flags uint16, attrs ...[]byte) []byte {
	t.Helper()
	k.seq++
	request := make([]byte, nlmsgHeader+nfgenHeader)
	for _, a := range attrs {
		request = append(request, a...)
	}
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], nfnlSubsysNFTables<<8|kind)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(request[8:], k.seq)
	request[nlmsgHeader] = family
	if err := unix.Sendto(k.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for {
		n, _, err := unix.Recvfrom(k.fd, k.buf, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k.buf[:n]...)
		for data := k.buf[:n]; len(data) >= nlmsgHeader; {
			size := binary.NativeEndian.Uint32(data)
			switch binary.NativeEndian.Uint16(data[4:]) {
			case unix.NLMSG_ERROR:
				t.Fatalf("the kernel says %v", unix.Errno(-int32(binary.NativeEndian.Uint32(data[nlmsgHeader:]))))
			case unix.NLMSG_DONE:
				return out
			}
			if flags&unix.NLM_F_DUMP == 0 {
				return out
			}
			data = data[min(uint32(len(data)), (size+3)&^3):]
		}
	}
}

func textAttribute(kind uint16, text string) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(nlattrHeader+len(text)+1))
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = append(append(a, text...), 0)
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}

// captureHeader is the header of a capture of this machine.
func captureHeader(t *testing.T) []byte {
	t.Helper()
	order := "little-endian"
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		order = "big-endian"
	}
	h := fmt.Sprintf("%s1\nbyte-order %s\ngeneration 1\n", netlinkMagic, order)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		h += fmt.Sprintf("interface %d %s\n", l.Index, l.Name)
	}
	return []byte(h + "\n")
}

// capture reads everything that nf_tables holds in the thread's namespace.
func capture(t *testing.T) []byte {
	t.Helper()
	k := openKernelSocket(t)
	out := captureHeader(t)
	for _, kind := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET} {
		got := k.ask(t, kind, unix.AF_UNSPEC, unix.NLM_F_DUMP)
		out = append(out, got...)
		if kind != unix.NFT_MSG_GETSET {
			continue
		}
		h := netlinkHeader{order: binary.NativeEndian}
		h.messages(got, func(m netlinkMessage) {
			a := parseAttributes(h.order, m.attrs)
			out = append(out, k.ask(t, unix.NFT_MSG_GETSETELEM, m.family, unix.NLM_F_DUMP,
				textAttribute(nftaSetElemListTable, a.text(nftaSetTable)), textAttribute(nftaSetElemListSet, a.text(nftaSetName)))...)
		})
	}
	for _, kind := range []uint16{unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETFLOWTABLE} {
		out = append(out, k.ask(t, kind, unix.AF_UNSPEC, unix.NLM_F_DUMP)...)
	}
	return append(out, k.ask(t, unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, 0)...)
}

// TestNetlinkAsListed loads rulesets, and compares what the kernel's messages say with what nft prints: as text, and
// as the data that its text and its JSON are read as. The recorded messages say the same as those of today.
func TestNetlinkAsListed(t *testing.T) {
	for _, pattern := range []string{"testdata/netlink/*.nft", "testdata/listing/*.nft"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no rulesets: %v", err)
		}
		for _, file := range files {
			t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				inNamespace(t, func(t *testing.T) {
					links(t)
					asListed(t, string(text), strings.TrimSuffix(file, ".nft"))
				})
			})
		}
	}
}

// links makes the interfaces that rulesets name.
func links(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"link", "add", "eth0", "type", "veth", "peer", "name", "eth1"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}

// asListed loads a ruleset and compares. Where a recording of it is kept it is compared too, or made anew.
func asListed(t *testing.T, text, name string) {
	t.Helper()
	version, err := nftCommand(t, "", "--version")
	if err != nil || !strings.Contains(version, "v1.0.6 ") {
		t.Skip("needs nft 1.0.6, whose listings are compared with")
	}
	if _, err := nftCommand(t, text, "-f", "-"); err != nil {
		t.Fatal(err)
	}
	want, err := nftCommand(t, "", "list", "ruleset")
	if err != nil {
		t.Fatal(err)
	}
	messages := capture(t)
	r, err := ParseNetlink(messages, "nft.nl")
	if err != nil {
		t.Fatal(err)
	}
	noProblems(t, r)
	got := r.String()
	if diff := cmp.Diff(strings.Split(lasting(meant(want)), "\n"), strings.Split(lasting(got), "\n")); diff != "" {
		t.Errorf("nft (-) and the messages (+):\n%s", diff)
	}
	sameAsText(t, r, got)
	json, err := nftCommand(t, "", "-j", "list", "ruleset")
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := ParseNetlink(messages, "nft.nl")
	if err != nil {
		t.Fatal(err)
	}
	sameAsJSON(t, fresh, parseJSON(t, json, "nft.json"))
	if filepath.Base(filepath.Dir(name)) != "netlink" {
		return
	}
	if os.Getenv("UPDATE_NETLINK") != "" {
		for end, data := range map[string][]byte{".nl": messages, ".txt": []byte(want)} {
			if err := os.WriteFile(name+end, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	old := parseNetlink(t, name)
	inlineInOrder(old)
	if diff := sameRulesets(old, r); diff != "" {
		t.Errorf("the recorded messages (-) and those of this kernel (+) are read as different data (make them anew with UPDATE_NETLINK=1):\n%s", diff)
	}
}

// TestNetlinkKeeps: nft 1.0.6 leaves out or rewrites some comparisons that say more than what it prints. Those stay as
// the kernel makes them.
func TestNetlinkKeeps(t *testing.T) {
	for _, tt := range []struct{ family, rule, want string }{
		// Of the first header behind, where the port is looked for behind all of them.
		{"ip6", "ip6 nexthdr tcp tcp dport 80", "ip6 nexthdr tcp tcp dport 80"},
		{"ip6", "ip6 nexthdr tcp tcp option maxseg size 1", "ip6 nexthdr tcp tcp option maxseg size 1"},
		// Ports without a name of their protocol.
		{"ip", "meta l4proto 47 th dport 22", "meta l4proto gre th dport 22"},
		// The connection's protocol, not the packet's.
		{"inet", "ct protocol tcp tcp dport 22", "ct protocol tcp tcp dport 22"},
		// One comparison of four bytes, which holds where one of the ports is another.
		{"ip", "tcp sport != 1 tcp dport != 2", "tcp sport . tcp dport != 1 . 2"},
		// Two halves of no range.
		{"ip", "tcp sport >= 1 tcp dport <= 5", "tcp sport >= 1 tcp dport <= 5"},
		{"ip", "meta mark < 5 meta priority > 3", "meta mark < 0x00000005 meta priority > 0:3"},
		{"inet", "meta nfproto ipv4 tcp dport 22 reject with tcp reset", "meta nfproto ipv4 tcp dport 22 reject with tcp reset"},
		{"inet", "meta nfproto ipv4 meta l4proto tcp reject with tcp reset", "meta nfproto ipv4 meta l4proto tcp reject with tcp reset"},
		{"ip", "ip saddr & 255.0.0.0 == 10.0.0.0", "ip saddr 10.0.0.0/8"},
		{"ip", "ip saddr & 255.0.0.0 == 10.0.0.1", "ip saddr & 255.0.0.0 == 10.0.0.1"},
		{"ip", "meta mark & 0xff000000 == 0x12000001", "meta mark & 0xff000000 == 0x12000001"},
		{"ip", "iif 7777", "iif 7777"},
	} {
		t.Run(tt.family+" "+tt.rule, func(t *testing.T) {
			inNamespace(t, func(t *testing.T) {
				text := fmt.Sprintf("table %s t {\n\tchain c {\n\t\t%s\n\t}\n}\n", tt.family, tt.rule)
				if _, err := nftCommand(t, text, "-f", "-"); err != nil {
					t.Fatal(err)
				}
				listed, err := nftCommand(t, "", "list", "ruleset")
				if err != nil {
					t.Fatal(err)
				}
				r, err := ParseNetlink(capture(t), "nft.nl")
				if err != nil {
					t.Fatal(err)
				}
				noProblems(t, r)
				if got := r.Tables[0].Chains[0].Rules[0].Text; got != tt.want {
					t.Errorf("%s\nwant %s\nnft says %s", got, tt.want, listed)
				}
			})
		})
	}
}
