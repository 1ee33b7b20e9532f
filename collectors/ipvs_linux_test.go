package collectors

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// The texts are held against ipvsadm and the kernel in test/ipvs, where a kernel with IPVS runs.

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func unionOf(s string) []byte {
	var b [16]byte
	copy(b[:], netip.MustParseAddr(s).AsSlice())
	return b[:]
}

func TestIPVSTexts(t *testing.T) {
	var servers []virtualServer
	for _, s := range []struct {
		attrs []byte
		reals [][]byte
	}{
		{
			attrs: join(attribute(nil, ipvsSvcAF, native16(unix.AF_INET)...), attribute(nil, ipvsSvcProtocol, native16(unix.IPPROTO_TCP)...),
				attribute(nil, ipvsSvcAddr, unionOf("10.96.0.1")...), attribute(nil, ipvsSvcPort, 443>>8, 443&255), attribute(nil, ipvsSvcSched, []byte("sh\x00")...),
				attribute(nil, ipvsSvcFlags, append(native32(ipvsPersistent|ipvsSched1|ipvsSched1<<1|2), native32(^uint32(0))...)...),
				attribute(nil, ipvsSvcTimeout, native32(10800)...), attribute(nil, ipvsSvcNetmask, 255, 255, 255, 0)),
			reals: [][]byte{
				join(attribute(nil, ipvsDestAddr, unionOf("192.168.10.10")...), attribute(nil, ipvsDestPort, 0x19, 0x2b), attribute(nil, ipvsDestMethod, native32(0)...),
					attribute(nil, ipvsDestWeight, native32(1)...), attribute(nil, ipvsDestUpper, native32(100)...), attribute(nil, ipvsDestLower, native32(50)...),
					attribute(nil, ipvsDestActive, native32(3)...), attribute(nil, ipvsDestInact, native32(14048)...), attribute(nil, ipvsDestAF, native16(unix.AF_INET)...)),
				join(attribute(nil, ipvsDestAddr, unionOf("fd00::5")...), attribute(nil, ipvsDestPort, 1, 0xbb), attribute(nil, ipvsDestMethod, native32(ipvsMethodTunnel)...),
					attribute(nil, ipvsDestWeight, native32(0)...), attribute(nil, ipvsDestAF, native16(unix.AF_INET6)...), attribute(nil, ipvsDestTunType, 1),
					attribute(nil, ipvsDestTunPort, 0x17, 0xc0), attribute(nil, ipvsDestTunFlags, native16(ipvsTunCsum)...)),
			},
		},
		{attrs: join(attribute(nil, ipvsSvcAF, native16(unix.AF_INET6)...), attribute(nil, ipvsSvcFWMark, native32(7)...), attribute(nil, ipvsSvcSched, []byte("rr\x00")...),
			attribute(nil, ipvsSvcFlags, append(native32(ipvsPersistent|ipvsOnePacket), native32(^uint32(0))...)...), attribute(nil, ipvsSvcTimeout, native32(60)...),
			attribute(nil, ipvsSvcNetmask, native32(64)...), attribute(nil, ipvsSvcPE, []byte("sip\x00")...))},
		{attrs: attribute(nil, ipvsSvcAddr, 1, 2)}, // cut
	} {
		v := virtualServerOf(s.attrs)
		for _, r := range s.reals {
			v.reals = append(v.reals, realServerOf(r, v.af))
		}
		servers = append(servers, v)
	}
	const save = `-A -t 10.96.0.1:443 -s sh -p 10800 -M 255.255.255.0 -b sh-fallback,sh-port
-a -t 10.96.0.1:443 -r 192.168.10.10:6443 -m -w 1 -x 100 -y 50
-a -t 10.96.0.1:443 -r [fd00::5]:443 -i -w 0 --tun-type gue --tun-port 6080 --tun-csum
-A -f 7 -6 -s rr -p 60 -M 64 --pe sip -o
`
	if diff := cmp.Diff(save, string(ipvsSaveText(servers[:2]))); diff != "" {
		t.Error(diff)
	}
	const list = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 sh (sh-fallback,sh-port) persistent 10800 mask 255.255.255.0
  -> 192.168.10.10:6443           Masq    1      3          14048     
  -> [fd00::5]:443                Tunnel  0      0          0         
FWM  7 IPv6 rr persistent 60 mask 64 pe sip ops
`
	if diff := cmp.Diff(list, string(ipvsListText("IP Virtual Server version 1.2.1 (size=4096)", servers[:2]))); diff != "" {
		t.Error(diff)
	}
	ipvsSaveText(servers[2:]) // does not panic
	ipvsStatsText("", servers[2:])
}

func native64(n uint64) []byte { return binary.NativeEndian.AppendUint64(nil, n) }

// counters are the counters of a message: connections and packets of 32 bits where wide is false.
func counters(kind uint16, wide bool, n ...uint64) []byte {
	var in []byte
	for i, v := range n {
		value := native64(v)
		if !wide && i < 3 {
			value = native32(uint32(v))
		}
		in = attribute(in, uint16(i+1), value...)
	}
	in = attribute(in, 6, native32(99)...) // a rate
	return attribute(nil, kind, in...)
}

// TestIPVSStats: the text is that of ipvsadm, whatever counters a message has and however long numbers are.
func TestIPVSStats(t *testing.T) {
	tcp := join(attribute(nil, ipvsSvcAF, native16(unix.AF_INET)...), attribute(nil, ipvsSvcProtocol, native16(unix.IPPROTO_TCP)...),
		attribute(nil, ipvsSvcAddr, unionOf("10.96.0.1")...), attribute(nil, ipvsSvcPort, 443>>8, 443&255))
	real4 := join(attribute(nil, ipvsDestAddr, unionOf("192.168.10.10")...), attribute(nil, ipvsDestPort, 0x19, 0x2b))
	six := join(attribute(nil, ipvsSvcAF, native16(unix.AF_INET6)...), attribute(nil, ipvsSvcProtocol, native16(unix.IPPROTO_UDP)...),
		attribute(nil, ipvsSvcAddr, unionOf("fd00:0:0:96:1:2:3:4")...), attribute(nil, ipvsSvcPort, 0, 53))
	var servers []virtualServer
	for _, s := range []struct{ server, real []byte }{
		// Both kinds, in both orders: those of 64 bits count.
		{join(tcp, counters(ipvsSvcStats, false, 1, 2, 3, 4, 5), counters(ipvsSvcStats64, true, 1<<32+12, 12345678, 123456789, 1<<40, 0)),
			join(real4, counters(ipvsDestStats64, true, 12, 344, 40, 23456, 9000), counters(ipvsDestStats, false, 1, 2, 3, 4, 5))},
		// An old kernel.
		{join(six, counters(ipvsSvcStats, false, 7, 8, 9, 1<<40, 10)), nil},
		{join(attribute(nil, ipvsSvcAF, native16(unix.AF_INET)...), attribute(nil, ipvsSvcFWMark, native32(7)...), counters(ipvsSvcStats64, true, 1)), nil},
		// Nothing, and what is cut.
		{join(attribute(nil, ipvsSvcAF, native16(unix.AF_INET6)...), attribute(nil, ipvsSvcFWMark, native32(8)...), attribute(nil, ipvsSvcStats64, 1, 2, 3)), nil},
	} {
		v := virtualServerOf(s.server)
		if s.real != nil {
			v.reals = append(v.reals, realServerOf(s.real, v.af))
		}
		servers = append(servers, v)
	}
	const want = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.96.0.1:443                4294967308 12345678 123456789 1099511627776        0
  -> 192.168.10.10:6443                 12      344       40    23456     9000
UDP  [fd00::96:1:2:3:4]:53               7        8        9 1099511627776       10
FWM  7                                   1        0        0        0        0
FWM  8 IPv6                              0        0        0        0        0
`
	if diff := cmp.Diff(want, string(ipvsStatsText("IP Virtual Server version 1.2.1 (size=4096)", servers))); diff != "" {
		t.Error(diff)
	}
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// TestNoIPVS: where the kernel has none, that is the answer, and nothing is loaded for it.
func TestNoIPVS(t *testing.T) {
	if _, err := os.Stat(procIPVS); err == nil {
		t.Skip("this kernel has IPVS")
	}
	read := readIPVS(t.Context(), &place{})
	if len(read) != 4 {
		t.Errorf("%d files", len(read))
	}
	for _, e := range read {
		if e.Status != snapshot.Absent || e.Note == "" {
			t.Errorf("%s: %s %s", e.File, e.Status, e.Error)
		}
	}
	c, err := openGeneric()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := c.genericFamily("IPVS"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a family that is not there: %v", err)
	}
	if id, err := c.genericFamily("nlctrl"); err != nil || id != unix.GENL_ID_CTRL {
		t.Errorf("the controller: %d, %v", id, err)
	}
}
