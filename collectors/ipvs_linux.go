package collectors

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

const (
	// ipvsFile holds the virtual servers as `ipvsadm -Sn` prints them.
	ipvsFile = "ipvsadm-save.txt"
	// ipvsListFile holds them with the connections that each real server has, as `ipvsadm -Ln` does.
	ipvsListFile = "ipvsadm-list.txt"
	// ipvsStatsFile holds what each has counted, as `ipvsadm -Ln --stats --exact` does.
	ipvsStatsFile = "ipvsadm-stats.txt"
	// ipvsConnFile holds connections, as the kernel prints them.
	ipvsConnFile = "ipvsadm-conn.txt"
)

// procIPVS is there exactly as long as the module is, in each network namespace.
const procIPVS = "/proc/thread-self/net/ip_vs"

// readIPVS reads virtual servers. IPVS is not asked before its file says that it is there. All forms of them are of one
// answer of the kernel.
func readIPVS(ctx context.Context, p *place) []snapshot.Evidence {
	files := []struct {
		name   string
		format snapshot.Format
	}{
		{p.dir + ipvsFile, snapshot.IPVSSave}, {p.dir + ipvsListFile, snapshot.IPVSList}, {p.dir + ipvsStatsFile, snapshot.IPVSList},
		{p.dir + ipvsConnFile, snapshot.IPVSConns},
	}
	head, err := firstLine(procIPVS)
	var out []snapshot.Evidence
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, f := range files {
			out = append(out, absent(f.name, f.format, "the kernel has no ip_vs loaded"))
		}
		return out
	case err != nil:
		for _, f := range files {
			out = append(out, couldNot(f.name, f.format, "IPVS", reasonOf(err)))
		}
		return out
	}
	servers, err := p.readVirtualServers(ctx)
	out = append(out, outcome(files[0].name, files[0].format, "IPVS", ipvsSaveText(servers), err))
	var list, stats []byte
	if len(servers) > 0 {
		list, stats = ipvsListText(head, servers), ipvsStatsText(head, servers)
	}
	out = append(out, outcome(files[1].name, files[1].format, "IPVS", list, err))
	out = append(out, outcome(files[2].name, files[2].format, "IPVS", stats, err))
	return append(out, readIPVSConns(ctx, files[3].name))
}

func firstLine(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// readVirtualServers reads all virtual servers at one moment: two readings in a row say the same, but for connections,
// which come and go.
func (p *place) readVirtualServers(ctx context.Context) ([]virtualServer, error) {
	c, err := openGeneric()
	if err != nil {
		return nil, err
	}
	defer c.close()
	family, err := c.genericFamily("IPVS")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nothingThere("the kernel has no ip_vs loaded")
		}
		return nil, err
	}
	var (
		servers []virtualServer
		last    string
		first   = true
	)
	read := func() (string, error) {
		var err error
		if servers, err = c.virtualServers(family); err != nil && !errors.Is(err, errInterrupted) {
			return "", err
		}
		slices.SortFunc(servers, compareServers)
		for i := range servers {
			slices.SortFunc(servers[i].reals, func(a, b realServer) int { return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.port, b.port)) })
		}
		return string(ipvsSaveText(servers)), nil
	}
	_, err = p.patience().atOneMoment(ctx, func() (a attempt, err error) {
		if first {
			if last, err = read(); err != nil {
				return a, err
			}
			first = false
		}
		a.before = last
		last, err = read()
		a.after = last
		return a, err
	})
	return servers, err
}

// compareServers is the order of ipvsadm (ipvs_cmp_services).
func compareServers(a, b virtualServer) int {
	return cmp.Or(cmp.Compare(a.mark, b.mark), cmp.Compare(a.af, b.af), cmp.Compare(a.proto, b.proto), a.addr.Compare(b.addr), cmp.Compare(a.port, b.port))
}

// ipvsSaveText is what `ipvsadm -Sn` prints, with the bounds of real servers, which it leaves out and reads back.
func ipvsSaveText(servers []virtualServer) []byte {
	var b bytes.Buffer
	for i := range servers {
		s := &servers[i]
		name := s.flag()
		fmt.Fprintf(&b, "-A %s -s %s", name, s.sched)
		if s.flags&ipvsPersistent != 0 {
			fmt.Fprintf(&b, " -p %d", s.timeout)
			switch {
			case s.af == unix.AF_INET6 && s.mask != 128:
				fmt.Fprintf(&b, " -M %d", s.mask)
			case s.af == unix.AF_INET && s.mask != 32:
				fmt.Fprintf(&b, " -M %s", s.netmask())
			}
		}
		if s.pe != "" {
			b.WriteString(" --pe " + s.pe)
		}
		if s.flags&ipvsOnePacket != 0 {
			b.WriteString(" -o")
		}
		if flags := s.schedFlags(); flags != "" {
			b.WriteString(" -b " + flags)
		}
		b.WriteByte('\n')
		for j := range s.reals {
			r := &s.reals[j]
			fmt.Fprintf(&b, "-a %s -r %s", name, netip.AddrPortFrom(r.addr, r.port))
			switch r.method & ipvsMethodMask {
			case 0:
				b.WriteString(" -m")
			case ipvsMethodTunnel:
				b.WriteString(" -i")
			case ipvsMethodRoute:
				b.WriteString(" -g")
			}
			fmt.Fprintf(&b, " -w %d", int32(r.weight))
			if r.upper != 0 {
				fmt.Fprintf(&b, " -x %d", r.upper)
			}
			if r.lower != 0 {
				fmt.Fprintf(&b, " -y %d", r.lower)
			}
			b.WriteString(r.tunnel())
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// flag is how the save form names a virtual server.
func (s *virtualServer) flag() string {
	if s.mark != 0 {
		if s.af == unix.AF_INET6 {
			return fmt.Sprintf("-f %d -6", s.mark)
		}
		return fmt.Sprintf("-f %d", s.mark)
	}
	dialled := netip.AddrPortFrom(s.addr, s.port).String()
	switch s.proto {
	case unix.IPPROTO_TCP:
		return "-t " + dialled
	case unix.IPPROTO_UDP:
		return "-u " + dialled
	}
	return "--sctp-service " + dialled
}

func (s *virtualServer) netmask() string {
	p, err := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(s.mask)
	if err != nil {
		return strconv.Itoa(s.mask)
	}
	return p.Addr().String()
}

// schedFlags are the options of a scheduler by the names that ipvsadm gives them.
func (s *virtualServer) schedFlags() string {
	var out []string
	for i := range 3 {
		if s.flags&(ipvsSched1<<i) == 0 {
			continue
		}
		name := fmt.Sprintf("flag-%d", i+1)
		if s.sched == "sh" || s.sched == "mh" {
			switch i {
			case 0:
				name = s.sched + "-fallback"
			case 1:
				name = s.sched + "-port"
			}
		}
		out = append(out, name)
	}
	return strings.Join(out, ",")
}

// tunnel are the options of a tunnel.
func (r *realServer) tunnel() string {
	if r.method&ipvsMethodMask != ipvsMethodTunnel {
		return ""
	}
	csum := " --tun-nocsum"
	switch {
	case r.tunFlags&ipvsTunCsum != 0:
		csum = " --tun-csum"
	case r.tunFlags&ipvsTunRemCsum != 0:
		csum = " --tun-remcsum"
	}
	switch r.tunType {
	case 1:
		return fmt.Sprintf(" --tun-type gue --tun-port %d%s", r.tunPort, csum)
	case 2:
		return " --tun-type gre" + csum
	}
	return " --tun-type ipip"
}

// ipvsListText is what `ipvsadm -Ln` prints; head is the first line of the kernel's own list.
func ipvsListText(head string, servers []virtualServer) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n", head)
	for i := range servers {
		s := &servers[i]
		b.WriteString(s.listed())
		b.WriteString(" " + s.sched)
		if flags := s.schedFlags(); flags != "" {
			b.WriteString(" (" + flags + ")")
		}
		if s.flags&ipvsPersistent != 0 {
			fmt.Fprintf(&b, " persistent %d", s.timeout)
			switch {
			case s.af == unix.AF_INET6 && s.mask != 128:
				fmt.Fprintf(&b, " mask %d", s.mask)
			case s.af == unix.AF_INET && s.mask != 32:
				fmt.Fprintf(&b, " mask %s", s.netmask())
			}
		}
		if s.pe != "" {
			b.WriteString(" pe " + s.pe)
		}
		if s.flags&ipvsOnePacket != 0 {
			b.WriteString(" ops")
		}
		b.WriteByte('\n')
		for j := range s.reals {
			r := &s.reals[j]
			method := [ipvsMethodMask + 1]string{0: "Masq", ipvsMethodLocal: "Local", ipvsMethodTunnel: "Tunnel", ipvsMethodRoute: "Route"}[r.method&ipvsMethodMask]
			fmt.Fprintf(&b, "  -> %-28s %-7s %-6d %-10d %-10d\n", netip.AddrPortFrom(r.addr, r.port), method, int32(r.weight), r.active, r.inactive)
		}
	}
	return b.Bytes()
}

// listed is how lists name a virtual server.
func (s *virtualServer) listed() string {
	switch {
	case s.mark != 0 && s.af == unix.AF_INET6:
		return fmt.Sprintf("FWM  %d IPv6", s.mark)
	case s.mark != 0:
		return fmt.Sprintf("FWM  %d", s.mark)
	}
	proto := map[uint16]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}[s.proto]
	return fmt.Sprintf("%-4s %s", proto, netip.AddrPortFrom(s.addr, s.port))
}

// ipvsStatsText is what `ipvsadm -Ln --stats --exact` prints; head is as for ipvsListText.
func ipvsStatsText(head string, servers []virtualServer) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%-33s %8s %8s %8s %8s %8s\n  -> RemoteAddress:Port\n", head, "Prot LocalAddress:Port", "Conns", "InPkts", "OutPkts", "InBytes", "OutBytes")
	line := func(name string, s *serverStats) {
		fmt.Fprintf(&b, "%-33s", name)
		for _, n := range [...]uint64{s.conns, s.inPkts, s.outPkts, s.inBytes, s.outBytes} {
			fmt.Fprintf(&b, " %8d", n)
		}
		b.WriteByte('\n')
	}
	for i := range servers {
		s := &servers[i]
		line(s.listed(), &s.stats)
		for j := range s.reals {
			r := &s.reals[j]
			line(fmt.Sprintf("  -> %-28s", netip.AddrPortFrom(r.addr, r.port)), &r.stats)
		}
	}
	return b.Bytes()
}

// maxIPVSConns bounds the connections that are kept.
const maxIPVSConns = 20_000

// readIPVSConns reads connections, which also tell with which real server a persistent client stays.
func readIPVSConns(ctx context.Context, file string) snapshot.Evidence {
	f, err := os.Open(procIPVS + "_conn")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return absent(file, snapshot.IPVSConns, "the kernel has no ip_vs loaded")
		}
		return couldNot(file, snapshot.IPVSConns, "connections of IPVS", reasonOf(err))
	}
	defer f.Close()
	text, n := bytes.Buffer{}, 0
	in := bufio.NewReaderSize(f, 64<<10)
	for ; n <= maxIPVSConns; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return couldNot(file, snapshot.IPVSConns, "connections of IPVS", ctx.Err())
		}
		line, err := in.ReadBytes('\n')
		text.Write(line)
		if err == io.EOF {
			break
		}
		if err != nil {
			return couldNot(file, snapshot.IPVSConns, "connections of IPVS", reasonOf(err))
		}
	}
	if n <= 1 {
		return evidence(file, snapshot.IPVSConns, nil) // the heading alone
	}
	e := evidence(file, snapshot.IPVSConns, text.Bytes())
	if n > maxIPVSConns {
		e.Status = snapshot.Truncated
		e.Error = fmt.Sprintf("read connections of IPVS: there are more than %d: the others are left out (for one of them: ipvsadm -Lnc)", maxIPVSConns)
	}
	return e
}
