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
	for _, e := range readIPVS(t.Context(), &place{}) {
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
