package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/report"
)

// Virtual servers are changed with IPVS's own messages of generic netlink. The package github.com/moby/ipvs would send
// them too, but it runs modprobe first, which may load more than what is there already, it does not know the kinds of
// tunnels, which a virtual server that is put back as it was may have, and it would be one more dependency. The program
// ipvsadm is not used where it is there: it stops at what is done already, and it gives a real server that is reached
// without a change of address (-g, -i) the port of the virtual server.

// Numbers of IPVS's messages (include/uapi/linux/ip_vs.h).
const (
	ipvsNewService = 1
	ipvsSetService = 2
	ipvsDelService = 3
	ipvsNewDest    = 5
	ipvsSetDest    = 6
	ipvsDelDest    = 7

	ipvsAttrService = 1
	ipvsAttrDest    = 2

	ipvsServiceAF       = 1
	ipvsServiceProtocol = 2
	ipvsServiceAddr     = 3
	ipvsServicePort     = 4
	ipvsServiceMark     = 5
	ipvsServiceSched    = 6
	ipvsServiceFlags    = 7
	ipvsServiceTimeout  = 8
	ipvsServiceNetmask  = 9
	ipvsServicePE       = 11

	ipvsDestAddr     = 1
	ipvsDestPort     = 2
	ipvsDestMethod   = 3
	ipvsDestWeight   = 4
	ipvsDestUpper    = 5
	ipvsDestLower    = 6
	ipvsDestAF       = 11
	ipvsDestTunType  = 13
	ipvsDestTunPort  = 14
	ipvsDestTunFlags = 15

	ipvsPersistent = 1 << 0
	ipvsOnePacket  = 1 << 2
)

// schedulerFlags are the options of schedulers by the names that ipvsadm gives them.
var schedulerFlags = map[string]uint32{
	"flag-1": 1 << 3, "flag-2": 1 << 4, "flag-3": 1 << 5,
	"sh-fallback": 1 << 3, "sh-port": 1 << 4, "mh-fallback": 1 << 3, "mh-port": 1 << 4,
}

// A serverCommand is a command of ipvsadm.
type serverCommand struct {
	line   int
	text   string
	verb   string
	server ipvs.Service
	real   ipvs.Dest
	// full and plain are the virtual server with everything and by its name alone, dest the real server.
	full, plain, dest *nl.RtAttr
}

// setServers does as `ipvsadm -R` with the input of a step. Each line leaves what it says: one that makes what is there
// already changes it, and one that deletes what is gone is content, so that an input that was broken off can be done anew.
func setServers(c report.RepairCommand) (func() error, error) {
	if len(c.Command) != 2 || c.Command[1] != "-R" {
		return nil, fmt.Errorf("change virtual servers: %q is not ipvsadm -R", strings.Join(c.Command, " "))
	}
	var all []*serverCommand
	n := 0
	for line := range strings.Lines(c.Input) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		s, err := parseServerCommand(n, line)
		if err != nil {
			return nil, fmt.Errorf("change virtual servers: line %d (%s): %w", n, line, err)
		}
		all = append(all, s)
	}
	return func() error { return runServers(all) }, nil
}

func parseServerCommand(n int, line string) (*serverCommand, error) {
	s := &serverCommand{line: n, text: line}
	var err error
	if s.verb, s.server, s.real, err = ipvs.Command(line); err != nil {
		return nil, err
	}
	s.plain = serverAttr(&s.server)
	s.full = serverAttr(&s.server)
	if err := describeServer(s.full, &s.server); err != nil {
		return nil, err
	}
	if s.real.Addr.IsValid() {
		s.dest, err = destAttr(&s.real, s.verb != "-d")
	}
	return s, err
}

func runServers(all []*serverCommand) error {
	if len(all) == 0 {
		return nil
	}
	family, err := ipvsFamily()
	if err != nil {
		return fmt.Errorf("change virtual servers: %w", err)
	}
	for _, s := range all {
		if err := s.run(family); err != nil {
			return fmt.Errorf("change virtual servers: line %d (%s): %w", s.line, s.text, err)
		}
	}
	return nil
}

// run does one command.
func (s *serverCommand) run(family int) error {
	tell := func(command uint8, parts ...*nl.RtAttr) error {
		req := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
		req.AddData(&nl.Genlmsg{Command: command, Version: 1})
		for _, p := range parts {
			req.AddData(p)
		}
		_, err := req.Execute(unix.NETLINK_GENERIC, 0)
		return err
	}
	switch s.verb {
	case "-A":
		err := tell(ipvsNewService, s.full)
		if errors.Is(err, unix.EEXIST) {
			err = tell(ipvsSetService, s.full)
		}
		return err
	case "-E":
		return tell(ipvsSetService, s.full)
	case "-D":
		if err := tell(ipvsDelService, s.plain); !errors.Is(err, unix.ESRCH) {
			return err
		}
	case "-a":
		err := tell(ipvsNewDest, s.plain, s.dest)
		if errors.Is(err, unix.EEXIST) {
			err = tell(ipvsSetDest, s.plain, s.dest)
		}
		return err
	case "-e":
		return tell(ipvsSetDest, s.plain, s.dest)
	case "-d":
		// Of a virtual server that is gone its real servers are too.
		if err := tell(ipvsDelDest, s.plain, s.dest); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// ipvsFamily is the kernel's number for IPVS. All families are listed and the one is looked for among them: asked by its
// name the kernel would load a module for one that it lacks.
func ipvsFamily() (int, error) {
	families, err := netlink.GenlFamilyList()
	if err != nil {
		return 0, fmt.Errorf("list the families of generic netlink: %w", err)
	}
	for _, f := range families {
		if f.Name == "IPVS" {
			return int(f.ID), nil
		}
	}
	return 0, errors.New("the kernel has no ip_vs loaded, and svcnet loads no modules (kube-proxy in IPVS mode does)")
}

func native16(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }
func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func addressFamily(a netip.Addr) uint16 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// sixteen is an address in the room that IPVS has for one of either family.
func sixteen(a netip.Addr) []byte {
	var b [16]byte
	copy(b[:], a.AsSlice())
	return b[:]
}

// serverAttr is a virtual server by its name.
func serverAttr(s *ipvs.Service) *nl.RtAttr {
	a := nl.NewRtAttr(ipvsAttrService|unix.NLA_F_NESTED, nil)
	family := uint16(unix.AF_INET)
	if s.Family == 6 {
		family = unix.AF_INET6
	}
	a.AddRtAttr(ipvsServiceAF, native16(family))
	if s.FWMark != 0 {
		a.AddRtAttr(ipvsServiceMark, native32(s.FWMark))
		return a
	}
	a.AddRtAttr(ipvsServiceProtocol, native16(uint16(s.Proto)))
	a.AddRtAttr(ipvsServiceAddr, sixteen(s.Addr))
	a.AddRtAttr(ipvsServicePort, binary.BigEndian.AppendUint16(nil, s.Port))
	return a
}

// describeServer adds to the name of a virtual server what else there is to it.
func describeServer(a *nl.RtAttr, s *ipvs.Service) error {
	var flags, timeout uint32
	if s.Persistent {
		flags, timeout = flags|ipvsPersistent, uint32(s.Timeout)
	}
	if s.OnePacket {
		flags |= ipvsOnePacket
	}
	for _, name := range s.SchedFlags {
		f, ok := schedulerFlags[name]
		if !ok {
			return fmt.Errorf("the option %s of a scheduler is not known", name)
		}
		flags |= f
	}
	mask := native32(uint32(s.Mask)) // of IPv6: a length
	if s.Family == 4 {
		mask = binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-min(s.Mask, 32)))
	}
	a.AddRtAttr(ipvsServiceSched, nl.ZeroTerminated(s.Scheduler))
	a.AddRtAttr(ipvsServiceFlags, append(native32(flags), native32(^uint32(0))...))
	a.AddRtAttr(ipvsServiceTimeout, native32(timeout))
	a.AddRtAttr(ipvsServiceNetmask, mask)
	if s.PE != "" {
		a.AddRtAttr(ipvsServicePE, nl.ZeroTerminated(s.PE))
	}
	return nil
}

// methods are the ways to reach a real server, as the kernel numbers them.
var methods = map[ipvs.Method]uint32{ipvs.Masq: 0, ipvs.Tunnel: 2, ipvs.Route: 3}

// destAttr is a real server, full or by its name.
func destAttr(d *ipvs.Dest, full bool) (*nl.RtAttr, error) {
	a := nl.NewRtAttr(ipvsAttrDest|unix.NLA_F_NESTED, nil)
	a.AddRtAttr(ipvsDestAddr, sixteen(d.Addr))
	a.AddRtAttr(ipvsDestPort, binary.BigEndian.AppendUint16(nil, d.Port))
	a.AddRtAttr(ipvsDestAF, native16(addressFamily(d.Addr)))
	if !full {
		return a, nil
	}
	method, ok := methods[d.Method]
	if !ok || !d.HasWeight {
		return nil, errors.New("how the real server is reached (-m, -g, -i) and its weight (-w) have to be said")
	}
	a.AddRtAttr(ipvsDestMethod, native32(method))
	a.AddRtAttr(ipvsDestWeight, native32(uint32(d.Weight)))
	a.AddRtAttr(ipvsDestUpper, native32(uint32(d.Upper)))
	a.AddRtAttr(ipvsDestLower, native32(uint32(d.Lower)))
	if d.Tunnel == "" {
		return a, nil
	}
	kind, port, flags, err := tunnelOf(d.Tunnel)
	if err != nil {
		return nil, err
	}
	a.AddRtAttr(ipvsDestTunType, []byte{kind})
	a.AddRtAttr(ipvsDestTunPort, binary.BigEndian.AppendUint16(nil, port))
	a.AddRtAttr(ipvsDestTunFlags, native16(flags))
	return a, nil
}

// tunnelOf reads "--tun-type gue --tun-port 6080 --tun-nocsum".
func tunnelOf(options string) (kind uint8, port, flags uint16, err error) {
	words := strings.Fields(options)
	for i := 0; i < len(words); i++ {
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch words[i] {
		case "--tun-type":
			k, ok := map[string]uint8{"ipip": 0, "gue": 1, "gre": 2}[value]
			if !ok {
				return 0, 0, 0, fmt.Errorf("tunnels of type %s are not known", value)
			}
			kind = k
			i++
		case "--tun-port":
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return 0, 0, 0, fmt.Errorf("%s is not a port", value)
			}
			port = uint16(n)
			i++
		case "--tun-nocsum":
		case "--tun-csum":
			flags |= 1 << 0
		case "--tun-remcsum":
			flags |= 1 << 1
		default:
			return 0, 0, 0, fmt.Errorf("the option %s of a tunnel is not known", words[i])
		}
	}
	return kind, port, flags, nil
}
