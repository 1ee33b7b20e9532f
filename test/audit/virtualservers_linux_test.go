package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/test/lab"
)

// A virtualServer is one of IPVS, as /proc/net/ip_vs lists it.
type virtualServer struct {
	proto      string // "TCP"
	at         netip.AddrPort
	scheduler  string
	persistent int // seconds; 0: not at all
	onePacket  bool
	reals      []realServer
}

type realServer struct {
	to     netip.AddrPort
	method string // "Masq"
	weight int
}

// key tells virtual servers apart.
func (v *virtualServer) key() string { return v.proto + " " + v.at.String() }

func (v *virtualServer) String() string {
	text := fmt.Sprintf("%s %s persistent %d one packet %t", v.key(), v.scheduler, v.persistent, v.onePacket)
	var reals []string
	for _, r := range v.reals {
		reals = append(reals, fmt.Sprintf(" -> %s %s %d", r.to, r.method, r.weight))
	}
	slices.Sort(reals)
	return text + strings.Join(reals, "")
}

func (v *virtualServer) clone() *virtualServer {
	c := *v
	c.reals = slices.Clone(v.reals)
	return &c
}

// virtualServers are those of a node, by key. While others have some too the file is not all there is, and in a hunt nobody has.
func virtualServers(n *lab.Node) (map[string]*virtualServer, error) {
	var text []byte
	err := n.Netns().Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/ip_vs")
		return err
	})
	if err != nil {
		return nil, err
	}
	return parseServers(string(text))
}

// parseServers reads lines as "TCP  0A600701:0050 rr persistent 60000 FFFFFFFF" and "  -> 0AF40114:1F90 Masq 1 0 0".
func parseServers(text string) (map[string]*virtualServer, error) {
	out := map[string]*virtualServer{}
	var last *virtualServer
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && (words[0] == "TCP" || words[0] == "UDP" || words[0] == "SCTP"):
			at, err := hexAddrPort(words[1])
			if err != nil {
				return nil, err
			}
			last = &virtualServer{proto: words[0], at: at, scheduler: words[2], onePacket: slices.Contains(words[3:], "ops")}
			if i := slices.Index(words, "persistent"); i > 0 {
				if last.persistent, err = strconv.Atoi(words[i+1]); err != nil {
					return nil, err
				}
				last.persistent /= jiffies
			}
			out[last.key()] = last
		case len(words) > 3 && words[0] == "->" && last != nil:
			to, err := hexAddrPort(words[1])
			if err != nil {
				return nil, err
			}
			weight, err := strconv.Atoi(words[3])
			if err != nil {
				return nil, err
			}
			last.reals = append(last.reals, realServer{to, words[2], weight})
		}
	}
	return out, nil
}

// jiffies are those of a second: the file counts them. The kernel of a guest has 100.
const jiffies = 100

// hexAddrPort reads "0A600701:0050" and "[fd00:0096:0000:0000:0000:0000:0000:0701]:0050".
func hexAddrPort(text string) (netip.AddrPort, error) {
	at := strings.LastIndexByte(text, ':')
	port, err := strconv.ParseUint(text[at+1:], 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var addr netip.Addr
	if strings.HasPrefix(text, "[") {
		addr, err = netip.ParseAddr(strings.Trim(text[:at], "[]"))
	} else {
		var b []byte
		b, err = hex.DecodeString(text[:at])
		addr, _ = netip.AddrFromSlice(b)
	}
	return netip.AddrPortFrom(addr, uint16(port)), err
}

// program brings the virtual servers of a node to what is wanted. Those that are as wanted stay as they are.
func program(n *lab.Node, want map[string]*virtualServer) error {
	now, err := virtualServers(n)
	if err != nil {
		return err
	}
	return n.Netns().Do(func() error {
		for key, v := range now {
			if w := want[key]; w == nil || w.String() != v.String() {
				if err := tell(3, v.name()); err != nil {
					return fmt.Errorf("delete virtual server %s: %w", v, err)
				}
				delete(now, key)
			}
		}
		for key, w := range want {
			if now[key] != nil {
				continue
			}
			if err := tell(1, w.full()); err != nil {
				return fmt.Errorf("make virtual server %s: %w", w, err)
			}
			for _, r := range w.reals {
				if err := tell(5, w.name(), r.full()); err != nil {
					return fmt.Errorf("add real server %s to %s: %w", r.to, w, err)
				}
			}
		}
		return nil
	})
}

// expireNoDest has the kernel forget the connections of a real server that is deleted.
const expireNoDest = "/proc/sys/net/ipv4/vs/expire_nodest_conn"

// forgetClients has the virtual servers that are chosen forget their connections, and which client they have sent where:
// all real servers go and come back. The first is the last then: a scheduler that goes round begins with the first, so that
// each is met in turn.
func forgetClients(n *lab.Node, chosen func(v *virtualServer) bool) error {
	all, err := virtualServers(n)
	if err != nil {
		return err
	}
	return n.Netns().Do(func() error {
		was, err := os.ReadFile(expireNoDest)
		if err != nil {
			return err
		}
		if err := os.WriteFile(expireNoDest, []byte("1"), 0); err != nil {
			return err
		}
		for key, v := range all {
			if !chosen(v) || len(v.reals) == 0 {
				delete(all, key)
				continue
			}
			for _, r := range v.reals {
				if err := tell(7, v.name(), r.full()); err != nil {
					return fmt.Errorf("take real server %s from %s: %w", r.to, v, err)
				}
			}
		}
		for range 200 {
			var left int
			if left, err = connectionsOf(all); err != nil || left == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for _, v := range all {
			// The kernel puts each before those that it has.
			for _, r := range slices.Backward(append(v.reals[1:], v.reals[0])) {
				if err := tell(5, v.name(), r.full()); err != nil {
					return fmt.Errorf("bring real server %s of %s back: %w", r.to, v, err)
				}
			}
		}
		if err != nil {
			return err
		}
		return os.WriteFile(expireNoDest, bytes.TrimSpace(was), 0)
	})
}

// connectionsOf counts the connections of virtual servers, and what they remember of clients.
func connectionsOf(all map[string]*virtualServer) (int, error) {
	text, err := os.ReadFile("/proc/thread-self/net/ip_vs_conn")
	if err != nil {
		return 0, err
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		// "TCP 0AF4010A 9C40 0A600701 0050 0AF40114 1F90 TIME_WAIT 119"
		words := strings.Fields(line)
		if len(words) < 7 || words[0] == "Pro" {
			continue
		}
		to := words[3]
		if strings.Contains(to, ":") {
			to = "[" + to + "]"
		}
		at, err := hexAddrPort(to + ":" + words[4])
		if err != nil {
			return 0, err
		}
		if all[words[0]+" "+at.String()] != nil {
			found++
		}
	}
	return found, nil
}

// tell sends a command of IPVS (linux/ip_vs.h): 1 makes a virtual server and 3 deletes it, 5 and 7 do so with a real one.
func tell(command uint8, parts ...*nl.RtAttr) error {
	family, err := familyOfIPVS()
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, p := range parts {
		req.AddData(p)
	}
	_, err = req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

// familyOfIPVS is the kernel's number for IPVS, the same in all namespaces.
var familyOfIPVS = sync.OnceValues(func() (int, error) {
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return 0, err
	}
	return int(family.ID), nil
})

func u16(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }
func u32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func addrBytes(a netip.Addr) []byte {
	var b [16]byte
	copy(b[:], a.AsSlice())
	return b[:]
}

func familyNumber(a netip.Addr) uint16 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// name is a virtual server as commands name it, full with everything.
func (v *virtualServer) name() *nl.RtAttr {
	a := nl.NewRtAttr(1|unix.NLA_F_NESTED, nil)
	a.AddRtAttr(1, u16(familyNumber(v.at.Addr())))
	a.AddRtAttr(2, u16(map[string]uint16{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}[v.proto]))
	a.AddRtAttr(3, addrBytes(v.at.Addr()))
	a.AddRtAttr(4, binary.BigEndian.AppendUint16(nil, v.at.Port()))
	return a
}

func (v *virtualServer) full() *nl.RtAttr {
	a := v.name()
	mask := []byte{255, 255, 255, 255}
	if v.at.Addr().Is6() {
		mask = u32(128)
	}
	var flags uint32
	if v.persistent > 0 {
		flags |= 1
	}
	if v.onePacket {
		flags |= 4
	}
	a.AddRtAttr(6, append([]byte(v.scheduler), 0))
	a.AddRtAttr(7, append(u32(flags), u32(^uint32(0))...))
	a.AddRtAttr(8, u32(uint32(v.persistent)))
	a.AddRtAttr(9, mask)
	return a
}

func (r *realServer) full() *nl.RtAttr {
	a := nl.NewRtAttr(2|unix.NLA_F_NESTED, nil)
	a.AddRtAttr(1, addrBytes(r.to.Addr()))
	a.AddRtAttr(2, binary.BigEndian.AppendUint16(nil, r.to.Port()))
	a.AddRtAttr(3, u32(map[string]uint32{"Masq": 0, "Tunnel": 2, "Route": 3}[r.method]))
	a.AddRtAttr(4, u32(uint32(r.weight)))
	a.AddRtAttr(5, u32(0))
	a.AddRtAttr(6, u32(0))
	a.AddRtAttr(11, u16(familyNumber(r.to.Addr())))
	return a
}
