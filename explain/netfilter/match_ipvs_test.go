package netfilter

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/explain/ipvs"
)

// TestIPVSMatch: as xt_ipvs has it, where "no" outlasts every "!".
func TestIPVSMatch(t *testing.T) {
	k := unaware()
	k.IPVS = new(ipvs.Table)
	at := netip.MustParseAddrPort
	conn := VirtualConn{
		Service: &ipvs.Service{Family: 4, Proto: ProtoTCP, Port: 80, Persistent: true}, Dest: &ipvs.Dest{Method: ipvs.Masq},
		Client: at("10.0.0.9:1000"), Virtual: at("10.96.0.1:80"), Server: at("10.244.1.2:8080"), Handled: true,
	}
	request := Packet{Family: IPv4, Proto: ProtoTCP, Src: conn.Client.Addr(), SrcPort: 1000, HasSrcPort: true, Dst: conn.Server.Addr(), DstPort: 8080, State: StateNew, IPVS: conn}
	answer := Packet{Family: IPv4, Proto: ProtoTCP, Src: conn.Virtual.Addr(), SrcPort: 80, Dst: conn.Client.Addr(), DstPort: 1000, State: StateEstablished, Reply: true, Answer: true, IPVS: conn}
	before := request
	before.IPVS.Handled = false
	masked := request
	masked.Src = netip.MustParseAddr("192.168.10.11")
	untracked := request
	untracked.State = StateUntracked
	single := request
	single.IPVS.Service = &ipvs.Service{OnePacket: true}
	direct := request
	direct.IPVS.Dest = &ipvs.Dest{Method: ipvs.Route}
	direct.Dst, direct.DstPort = conn.Virtual.Addr(), 80
	for _, c := range []struct {
		rule string
		p    *Packet
		want Truth
	}{
		{"--ipvs", &request, True},
		{"! --ipvs", &request, False},
		{"--ipvs", &before, False},
		{"! --ipvs", &before, True},
		{"--ipvs", &answer, True},
		{"--vaddr 10.96.0.1", &request, True},
		{"--vaddr 10.96.0.0/16 --vproto tcp --vport 80 --vdir ORIGINAL --vmethod MASQ", &request, True},
		{"! --vaddr 10.96.0.1", &request, False},
		{"! --vaddr 10.96.0.2", &request, True},
		{"! --vaddr 10.96.0.2", &before, False},
		{"--vaddr 10.96.0.1", &answer, False},
		{"--vaddr 10.96.0.1", &masked, False},
		{"--vport 81", &request, False},
		{"! --vport 81", &request, True},
		{"--vproto 17", &request, False},
		{"! --vproto 17", &request, True},
		{"--vdir REPLY", &request, False},
		{"--vdir ORIGINAL", &untracked, False},
		{"--vport 80", &untracked, True},
		{"--vport 80", &single, False},
		{"--vmethod GATE", &request, False},
		{"! --vmethod GATE", &request, True},
		{"--vport 80 --vmethod GATE", &direct, True},
		{"--vportctl 80", &request, True},
		{"--vportctl 21", &request, False},
		{"! --vportctl 21", &request, True},
	} {
		if a := parseMatch(t, "-m ipvs "+c.rule).Test(k, Output, c.p); a.Truth != c.want {
			t.Errorf("%s: %d, want %d", c.rule, a.Truth, c.want)
		}
		if a := parseMatch(t, "-m ipvs "+c.rule).Test(unaware(), Output, c.p); a.Truth != Undecided || a.Fact.Key != "ipvs "+strings.Replace(c.rule, "--vaddr 10.96.0.0/16 --vproto tcp", "--vproto 6 --vaddr 10.96.0.0/16", 1) {
			t.Errorf("%s where nothing was captured: %+v", c.rule, a)
		}
	}
}
