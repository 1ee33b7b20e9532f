package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/svcnet/svcnet/explain/host"
)

// insideFlag marks the process that TestKernel starts in a network namespace of its own.
const insideFlag = "SVCNET_IPSET_INSIDE"

// TestKernel fills sets of every type with random entries and sends random packets through rules that ask them, by
// every combination of directions. Whether a packet is in a set is what the kernel's counters say.
func TestKernel(t *testing.T) {
	if os.Getenv(insideFlag) != "" {
		return // this is the process inside
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	for _, tool := range []string{"unshare", "ipset", "iptables-legacy-restore", "ip6tables-legacy-restore", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-n", self, "-test.run", "^TestKernelInside$", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Env = append(os.Environ(), insideFlag+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "packets, ") {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "packets, ") || strings.Contains(line, "this kernel lacks") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// Pools are small, so that packets often meet entries.
var (
	pool4 = []string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.1", "10.1.1.1", "172.16.0.9", "192.0.2.1"}
	nets4 = []string{"10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.1.0.0/16", "10.0.0.0/30", "10.0.0.1", "172.16.0.0/12", "0.0.0.0/1", "128.0.0.0/1"}
	pool6 = []string{"fd00::1", "fd00::2", "fd00:0:1::1", "fd00:1::1", "fd01::1"}
	nets6 = []string{"fd00::/16", "fd00::/64", "fd00::/126", "fd00:1::/32", "fd00::1", "8000::/1", "::/1"}
	ports = []int{53, 80, 81, 443}
	kinds = []uint8{protoTCP, protoUDP, protoSCTP, protoUDPLite, protoICMP, 47, 253}
)

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// supported are the types that the kernel has.
func supported(t *testing.T) map[string]bool {
	out := make(map[string]bool)
	var lacks []string
	for _, typ := range types {
		args := []string{"create", "probe", typ.name}
		switch {
		case strings.HasPrefix(typ.name, "bitmap:ip"):
			args = append(args, "range", "10.0.0.0/24")
		case typ.name == "bitmap:port":
			args = append(args, "range", "0-9")
		}
		if err := exec.Command("ipset", args...).Run(); err != nil {
			lacks = append(lacks, typ.name)
			continue
		}
		out[typ.name] = true
		command(t, "", "ipset", "destroy", "probe")
	}
	if len(lacks) > 0 {
		t.Logf("this kernel lacks %s: no packets, no answers", strings.Join(lacks, ", "))
	}
	return out
}

// randomSets are sets in the form of ipset restore.
func randomSets(r *rand.Rand, has map[string]bool) string {
	var b strings.Builder
	for _, family := range []int{4, 6} {
		addrs, nets, word := pool4, nets4, "inet"
		if family == 6 {
			addrs, nets, word = pool6, nets6, "inet6"
		}
		port := func() string {
			switch p := pick(r, kinds); {
			case p == protoICMP && family == 6:
				return "icmpv6:128/0"
			case p == protoICMP:
				return "icmp:" + pick(r, []string{"echo-request", "3/3"})
			case p == 47 || p == 253:
				return fmt.Sprintf("%d:0", p)
			default:
				return fmt.Sprintf("%s:%d", map[uint8]string{protoTCP: "tcp", protoUDP: "udp", protoSCTP: "sctp", protoUDPLite: "udplite"}[p], pick(r, ports))
			}
		}
		for i, typ := range types {
			if !has[typ.name] || typ.family > 0 && typ.family != family || typ.family == 0 && family == 6 {
				continue
			}
			name := fmt.Sprintf("s%d-%d", family, i)
			options := "family " + word
			switch {
			case strings.HasPrefix(typ.name, "bitmap:ip"):
				options = "range 10.0.0.0/16"
			case typ.name == "bitmap:port":
				options = "range 0-1000"
			case typ.name == "list:set":
				options = "size 8"
			case typ.name == "hash:mac":
				options = ""
			case typ.name == "hash:ip,mark":
				options += " markmask 0xf"
			}
			if typ.name == "list:set" {
				continue // made last: it names others
			}
			fmt.Fprintf(&b, "create %s %s %s\n", name, typ.name, options)
			for range 1 + r.IntN(6) {
				var parts []string
				nomatch := ""
				for _, p := range typ.parts {
					switch {
					case p == partIP && strings.HasPrefix(typ.name, "bitmap"):
						parts = append(parts, pick(r, []string{"10.0.0.1", "10.0.0.2", "10.0.1.1"}))
					case p == partIP:
						parts = append(parts, pick(r, addrs))
					case p == partNet:
						parts = append(parts, pick(r, nets))
						nomatch = pick(r, []string{"", "", "", " nomatch"})
					case p == partPort && typ.name == "bitmap:port":
						parts = append(parts, strconv.Itoa(pick(r, ports)))
					case p == partPort:
						parts = append(parts, port())
					case p == partIface:
						parts = append(parts, pick(r, []string{"lo", "out0", "out1", "eth9", "physdev:out0", "ou"}))
						if parts[len(parts)-1] == "ou" {
							nomatch += " wildcard"
						}
					case p == partMAC:
						parts = append(parts, "02:00:00:00:00:01")
					case p == partMark:
						parts = append(parts, fmt.Sprint(r.IntN(4)))
					}
				}
				fmt.Fprintf(&b, "add %s %s%s\n", name, strings.Join(parts, ","), nomatch)
			}
		}
	}
	b.WriteString("create masked hash:ip netmask 24\nadd masked 10.0.0.0\n")
	if !has["list:set"] {
		return b.String()
	}
	b.WriteString("create list list:set\n")
	for i, m := range []string{"hash:ip", "hash:ip,port", "hash:net", "hash:net,net", "bitmap:port"} {
		if has[m] && r.IntN(2) == 0 {
			family := 4
			if i == 0 {
				family = 6
			}
			fmt.Fprintf(&b, "add list s%d-%d\n", family, slices.IndexFunc(types, func(t knownType) bool { return t.name == m }))
		}
	}
	b.WriteString("add list masked\n")
	return b.String()
}

// asked is one rule: a set and the directions.
type asked struct {
	set  string
	dirs []Dir
}

func (a asked) rule() string {
	words := []string{"src", "dst"}
	var dirs []string
	for _, d := range a.dirs {
		dirs = append(dirs, words[d])
	}
	return fmt.Sprintf("-A ours -m set --match-set %s %s", a.set, strings.Join(dirs, ","))
}

func rulesOf(all []asked) string {
	var b strings.Builder
	// The kernel's own packets, such as answers and neighbour discovery, have no mark.
	b.WriteString("*raw\n:OUTPUT ACCEPT [0:0]\n:ours - [0:0]\n-A OUTPUT -m mark --mark 0x100/0x100 -j ours\n")
	for _, a := range all {
		b.WriteString(a.rule() + "\n")
	}
	return b.String() + "COMMIT\n"
}

// questions are all combinations of directions for every set, and some with a direction too few or too many. iptables
// does not take a set of the other family but in a list.
func questions(sets []*Set, family int) []asked {
	var out []asked
	for _, s := range sets {
		if s.Family != 0 && s.Family != family {
			continue
		}
		for n := max(1, s.Dimensions()-1); n <= min(3, s.Dimensions()+1); n++ {
			for bits := range 1 << n {
				a := asked{set: s.Name}
				for i := range n {
					a.dirs = append(a.dirs, Dir(bits>>i&1))
				}
				out = append(out, a)
			}
		}
	}
	return out
}

func command(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s\n%s", name, strings.Join(args, " "), err, out, stdin)
	}
	return string(out)
}

// TestKernelInside is the part of TestKernel that runs in the namespace.
func TestKernelInside(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return // only TestKernel runs it
	}
	for line := range strings.Lines(`link set lo up
link add out0 type veth peer name far0
link add out1 type veth peer name far1
link set out0 up
link set out1 up
link set far0 up
link set far1 up
route add local 10.0.0.0/16 dev lo
route add 10.1.0.0/16 dev out0
route add 172.16.0.0/12 dev out1
route add default dev out1
-6 route add local fd00::/64 dev lo
-6 route add fd00:1::/32 dev out0
-6 route add default dev out1`) {
		command(t, "", "ip", strings.Fields(line)...)
	}
	has := supported(t)
	packets, answers, inside := 0, 0, 0
	seeds, each := uint64(12), 20
	if testing.Short() { // test/uml runs it where every command takes long
		seeds, each = 2, 12
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		command(t, "", "iptables-legacy", "-t", "raw", "-F")
		command(t, "", "ip6tables-legacy", "-t", "raw", "-F")
		command(t, "", "ipset", "flush")
		command(t, "", "ipset", "destroy")
		command(t, randomSets(r, has), "ipset", "-exist", "restore")
		saved := command(t, "", "ipset", "save")
		sets, problems, err := Parse(saved, "save")
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v, %v", err, problems)
		}
		listed, problems, err := Parse(command(t, "", "ipset", "list"), "list")
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v, %v", err, problems)
		}
		sameSets(t, sets, listed)
		byName := make(map[string]*Set)
		for _, s := range sets {
			byName[s.Name] = s
			if s.Missing != "" || s.unsure != "" {
				t.Fatalf("set %s: %q, %q", s.Name, s.Missing, s.unsure)
			}
		}
		all := map[int][]asked{4: questions(sets, 4), 6: questions(sets, 6)}
		for range each {
			p, dst := randomPacket(r)
			prefix := map[int]string{4: "ip", 6: "ip6"}[p.Family]
			command(t, rulesOf(all[p.Family]), prefix+"tables-legacy-restore")
			if err := send(p, dst); err != nil {
				t.Fatal(err)
			}
			out := command(t, "", prefix+"tables-legacy-save", "-t", "raw", "-c")
			p.Ifaces[Dst] = routedBy(t, dst)
			got := countersOf(t, out, len(all[p.Family]))
			packets++
			for i, a := range all[p.Family] {
				want := byName[a.set].Test(func(n string) *Set { return byName[n] }, a.dirs, &p)
				answers++
				if got[i] > 0 {
					inside++
				}
				switch {
				case want.Is == host.Unknown:
					t.Errorf("seed %d: %s: %+v is not decided: %s", seed, a.rule(), p, want.Because)
				case (want.Is == host.Yes) != (got[i] > 0):
					t.Errorf("seed %d: %s (%s): %+v: the kernel says %v, Test says %v\n%s", seed, a.rule(), byName[a.set].Type, p, got[i] > 0, want.Is == host.Yes, entriesOf(saved, a.set))
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d packets, %d answers, %d of them yes", packets, answers, inside)
	if inside < answers/50 {
		t.Errorf("too few packets are in a set")
	}
}

func entriesOf(saved, set string) string {
	var b strings.Builder
	for line := range strings.Lines(saved) {
		if strings.HasPrefix(line, "add "+set+" ") || strings.HasPrefix(line, "create "+set+" ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

var counted = regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A ours`)

func countersOf(t *testing.T, saved string, n int) []int {
	t.Helper()
	found := counted.FindAllStringSubmatch(saved, -1)
	if len(found) != n {
		t.Fatalf("%d rules instead of %d:\n%s", len(found), n, saved)
	}
	var out []int
	for _, m := range found {
		c, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func routedBy(t *testing.T, dst netip.Addr) string {
	t.Helper()
	words := strings.Fields(command(t, "", "ip", "route", "get", dst.String()))
	for i, w := range words {
		if w == "dev" {
			return words[i+1]
		}
	}
	t.Fatalf("no route: %v", words)
	return ""
}

// randomPacket is a packet of the node itself: it comes in on no interface. Rules see its mark, which raw packets get
// from their socket.
func randomPacket(r *rand.Rand) (Packet, netip.Addr) {
	p := Packet{Family: 4, Proto: pick(r, kinds), KnowsPorts: [2]bool{true, true}, KnowsIfaces: [2]bool{true, true}, Mark: 0x100 | uint32(r.IntN(20))}
	pool := pool4
	if r.IntN(3) == 0 {
		p.Family, pool = 6, pool6
		if p.Proto == protoICMP {
			p.Proto = protoICMPv6
		}
	}
	p.Addrs = [2]netip.Addr{netip.MustParseAddr(pick(r, pool)), netip.MustParseAddr(pick(r, pool))}
	p.Ports = [2]uint16{uint16(pick(r, ports)), uint16(pick(r, ports))}
	switch p.Proto {
	case protoICMP:
		p.Ports[0] = pick(r, []uint16{8 << 8, 3<<8 | 3})
		p.Ports[1] = p.Ports[0]
	case protoICMPv6:
		p.Ports = [2]uint16{128 << 8, 128 << 8}
	}
	return p, p.Addrs[Dst]
}

// send sends a packet as it is, with a header of ours.
func send(p Packet, dst netip.Addr) error {
	var l4 []byte
	switch p.Proto {
	case protoICMP, protoICMPv6:
		l4 = make([]byte, 8)
		binary.BigEndian.PutUint16(l4, p.Ports[0])
	default:
		l4 = make([]byte, 24)
		binary.BigEndian.PutUint16(l4, p.Ports[Src])
		binary.BigEndian.PutUint16(l4[2:], p.Ports[Dst])
	}
	domain, head := syscall.AF_INET, []byte(nil)
	var to syscall.Sockaddr
	if p.Family == 4 {
		head = make([]byte, 20)
		head[0], head[8], head[9] = 0x45, 64, p.Proto
		binary.BigEndian.PutUint16(head[2:], uint16(20+len(l4)))
		copy(head[12:], p.Addrs[Src].AsSlice())
		copy(head[16:], dst.AsSlice())
		to = &syscall.SockaddrInet4{Addr: dst.As4()}
	} else {
		domain = syscall.AF_INET6
		head = make([]byte, 40)
		head[0], head[6], head[7] = 0x60, p.Proto, 64
		binary.BigEndian.PutUint16(head[4:], uint16(len(l4)))
		copy(head[8:], p.Addrs[Src].AsSlice())
		copy(head[24:], dst.AsSlice())
		to = &syscall.SockaddrInet6{Addr: dst.As16()}
	}
	fd, err := syscall.Socket(domain, syscall.SOCK_RAW, syscall.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_MARK, int(p.Mark)); err != nil {
		return err
	}
	if err := syscall.Sendto(fd, append(head, l4...), 0, to); err != nil && !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("send to %s: %w", dst, err)
	}
	return nil
}
