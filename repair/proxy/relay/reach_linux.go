package relay

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// reacher brings packets to addresses here that are not the node's own. It is used with the relay's lock held.
type reacher struct {
	mode Reach
	log  func(string)
	// room is the namespace; nil before it is needed.
	room *room
	// ours are the addresses that are routed here, and how.
	ours map[netip.Addr]Reach
	// local are the node's own addresses, ranges its ranges of them, as of the last look.
	local  map[netip.Addr]bool
	ranges []netip.Prefix
	looked time.Time
}

// lookEvery is how long a look at the node's addresses is good for, where nothing unknown is asked for.
const lookEvery = 10 * time.Second

// room is a network namespace with nothing in it but the relay's sockets.
type room struct {
	fd     int
	device netlink.Link // the node's end
	node   *netlink.Handle
	inside *netlink.Handle
	lo     netlink.Link // the loopback device inside
}

// place says where the socket for an address has to be made: in the namespace, if any, or on the node.
type place struct {
	room *room
	err  error
}

// reach routes addresses here and says where to listen on them. from are addresses of the node by family, from which the
// node itself is to send to them. free says why an address may not become one of the node's: a process has a port of it on
// all addresses, and clients of the Service would get to that.
func (r *reacher) reach(addrs []netip.Addr, from map[int]netip.Addr, free func(netip.Addr) error) map[netip.Addr]place {
	out := make(map[netip.Addr]place, len(addrs))
	unknown := func(a netip.Addr) bool { return r.ours[a] == ReachAuto && !r.isLocal(a) }
	if time.Since(r.looked) > lookEvery || slices.ContainsFunc(addrs, unknown) {
		if err := r.look(); err != nil {
			r.log("addresses of the node: " + err.Error())
		}
		r.looked = time.Now()
	}
	for _, a := range addrs {
		how, ok := r.ours[a]
		if !ok && r.isLocal(a) {
			out[a] = place{}
			continue
		}
		var err error
		if !ok {
			how, err = r.way()
		}
		if err == nil && how == ReachLocal {
			err = free(a)
		}
		if err == nil && !ok {
			err = r.take(a, how, from[familyOf(a)])
		}
		switch {
		case err != nil:
			out[a] = place{err: err}
			continue
		case how == ReachNamespace:
			out[a] = place{room: r.room}
		default:
			out[a] = place{}
		}
		r.ours[a] = how
	}
	return out
}

// isLocal says whether an address is one of the node's own.
func (r *reacher) isLocal(a netip.Addr) bool {
	return a.IsUnspecified() || r.local[a] || slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// look reads the local routing tables.
func (r *reacher) look() error {
	r.local, r.ranges = make(map[netip.Addr]bool), nil
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		if err != nil {
			return fmt.Errorf("read the local routing table: %w", err)
		}
		for i := range routes {
			if routes[i].Dst == nil || routes[i].Protocol == RouteProtocol {
				continue
			}
			if a, ok := netip.AddrFromSlice(routes[i].Dst.IP); ok {
				a = a.Unmap()
				if bits, _ := routes[i].Dst.Mask.Size(); bits == a.BitLen() {
					r.local[a] = true
				} else {
					r.ranges = append(r.ranges, netip.PrefixFrom(a, bits))
				}
			}
		}
	}
	return nil
}

// way says how addresses are routed here, and makes the namespace when it is needed first.
func (r *reacher) way() (Reach, error) {
	if r.mode == ReachNone {
		return "", errors.New("this is no address of the node")
	}
	if r.mode == ReachLocal || r.room != nil {
		return cmp.Or(r.mode, ReachNamespace), nil
	}
	room, err := newRoom()
	switch {
	case err == nil:
		r.room = room
		return ReachNamespace, nil
	case r.mode == ReachNamespace:
		return "", fmt.Errorf("make a network namespace: %w", err)
	}
	r.log("no network namespace for service addresses (" + err.Error() + "): they become addresses of this node instead")
	r.mode = ReachLocal
	return ReachLocal, nil
}

// take routes one address here.
func (r *reacher) take(a netip.Addr, how Reach, from netip.Addr) error {
	if how == ReachLocal {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := addRoute(netlink.RouteAdd, hostRoute(a, lo.Attrs().Index, unix.RTN_LOCAL, netlink.SCOPE_HOST), from); err != nil {
			return fmt.Errorf("add a local route: %w", err)
		}
		return nil
	}
	if err := r.room.own(a); err != nil {
		return fmt.Errorf("make it an address of the namespace: %w", err)
	}
	outside := hostRoute(a, r.room.device.Attrs().Index, unix.RTN_UNICAST, netlink.SCOPE_LINK)
	if err := addRoute(r.room.node.RouteAdd, outside, from); err != nil {
		_ = r.room.disown(a)
		return fmt.Errorf("route it to %s: %w", Device, err)
	}
	return nil
}

// addRoute adds a route by which the node sends from a certain address, or, where that is none of its own, from whichever
// the kernel takes.
func addRoute(add func(*netlink.Route) error, route *netlink.Route, from netip.Addr) error {
	if from.IsValid() {
		route.Src = net.IP(from.AsSlice())
	}
	err := add(route)
	if errors.Is(err, unix.EINVAL) && route.Src != nil {
		route.Src = nil
		err = add(route)
	}
	return err
}

// hostRoute is a route of the local table, which is asked before every other, for one address.
func hostRoute(a netip.Addr, device int, kind int, scope netlink.Scope) *netlink.Route {
	bits := a.BitLen()
	route := &netlink.Route{
		Dst:       &net.IPNet{IP: net.IP(a.AsSlice()), Mask: net.CIDRMask(bits, bits)},
		LinkIndex: device, Table: unix.RT_TABLE_LOCAL, Type: kind, Protocol: RouteProtocol, Scope: scope,
	}
	if a.Is6() {
		route.Scope = netlink.SCOPE_UNIVERSE // IPv6 routes have no scopes
	}
	return route
}

// release ends the routes of addresses that are not wanted any more. It returns how many of those are still used.
func (r *reacher) release(wanted, used func(netip.Addr) bool) (left int) {
	for a, how := range r.ours {
		if wanted(a) {
			continue
		}
		if used(a) {
			left++
			continue
		}
		if err := r.remove(a, how); err != nil {
			r.log(fmt.Sprintf("remove the route of %s: %s", a, err))
			left++
			continue
		}
		delete(r.ours, a)
	}
	return left
}

func (r *reacher) remove(a netip.Addr, how Reach) error {
	if how == ReachLocal {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return gone(netlink.RouteDel(hostRoute(a, lo.Attrs().Index, unix.RTN_LOCAL, netlink.SCOPE_HOST)))
	}
	return errors.Join(
		gone(r.room.node.RouteDel(hostRoute(a, r.room.device.Attrs().Index, unix.RTN_UNICAST, netlink.SCOPE_LINK))),
		r.room.disown(a))
}

// own makes an address one of the namespace's. An IPv4 one is a route only, which costs the same however many there are;
// of an IPv6 one the kernel sends errors (that nobody listens on a port) only if an interface has it.
func (m *room) own(a netip.Addr) error {
	var err error
	if a.Is4() {
		err = m.inside.RouteAdd(hostRoute(a, m.lo.Attrs().Index, unix.RTN_LOCAL, netlink.SCOPE_HOST))
	} else {
		err = m.inside.AddrAdd(m.lo, address(a))
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (m *room) disown(a netip.Addr) error {
	if a.Is4() {
		return gone(m.inside.RouteDel(hostRoute(a, m.lo.Attrs().Index, unix.RTN_LOCAL, netlink.SCOPE_HOST)))
	}
	return gone(m.inside.AddrDel(m.lo, address(a)))
}

// address is one that nobody has to be asked about before it is used.
func address(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.IP(a.AsSlice()), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NODAD}
}

// gone takes it for done that somebody else removed a route.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// close removes all that was added.
func (r *reacher) close() {
	r.release(func(a netip.Addr) bool { return r.ours[a] == ReachNamespace }, func(netip.Addr) bool { return false })
	if r.room != nil {
		// The routes go with the device, the namespace with the last socket in it.
		if err := r.room.node.LinkDel(r.room.device); err != nil {
			r.log("remove device " + Device + ": " + err.Error())
		}
		r.room.close()
		r.room = nil
	}
	clear(r.ours)
}

func (m *room) close() {
	if m.node != nil {
		m.node.Close()
	}
	if m.inside != nil {
		m.inside.Close()
	}
	unix.Close(m.fd)
}

// deviceWait is how long a device of this name may take to go away: the kernel removes what a killed process left a
// moment after its end.
const deviceWait = 5 * time.Second

// newRoom makes a namespace and the devices that lead there.
//
// Both ends of the pair have the same hardware address and no ARP: what one end sends is addressed to itself, and so
// taken by the other. Nothing has to be resolved, for IPv4 as for IPv6, and no end needs an address.
func newRoom() (_ *room, err error) {
	m := &room{fd: -1}
	defer func() {
		if err == nil {
			return
		}
		if m.device != nil {
			_ = m.node.LinkDel(m.device)
		}
		if m.fd >= 0 {
			m.close()
		}
	}()
	if err := alone(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		if m.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		m.inside, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	}); err != nil {
		return nil, err
	}
	if m.node, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	hardware := net.HardwareAddr{0x02, 's', 'v', 'c', 'n', 0x01}
	mtu, err := m.narrowest()
	if err != nil {
		return nil, err
	}
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: Device, MTU: mtu, HardwareAddr: hardware, TxQLen: 1000},
		PeerName:  Device, PeerHardwareAddr: hardware, PeerNamespace: netlink.NsFd(m.fd), PeerMTU: uint32(mtu),
	}
	for end := time.Now().Add(deviceWait); ; {
		err = m.node.LinkAdd(pair)
		if !errors.Is(err, unix.EEXIST) || time.Now().After(end) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("there is a device %s already: another proxy of this kind is running (or the device was made by somebody else)", Device)
	}
	if err != nil {
		return nil, fmt.Errorf("add a pair of devices (veth): %w", err)
	}
	if m.device, err = m.node.LinkByName(Device); err != nil {
		return nil, err
	}
	lo, err := m.inside.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	m.lo = lo
	peer, err := m.inside.LinkByName(Device)
	if err != nil {
		return nil, err
	}
	if err := m.inside.LinkSetUp(lo); err != nil {
		return nil, err
	}
	for _, end := range []struct {
		h    *netlink.Handle
		link netlink.Link
	}{{m.node, m.device}, {m.inside, peer}} {
		if err := end.h.LinkSetARPOff(end.link); err != nil {
			return nil, err
		}
		// Without IPv6 on the machine there is nothing to keep from making addresses.
		_ = end.h.LinkSetIP6AddrGenMode(end.link, ip6AddrGenNone)
		if err := end.h.LinkSetUp(end.link); err != nil {
			return nil, err
		}
	}
	back := &netlink.Route{LinkIndex: peer.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Scope: netlink.SCOPE_LINK}
	if err := m.inside.RouteAdd(back); err != nil {
		return nil, fmt.Errorf("route back to the node: %w", err)
	}
	// Without IPv6 on the machine there is nothing to route.
	_ = m.inside.RouteAdd(&netlink.Route{LinkIndex: peer.Attrs().Index, Dst: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}})
	return m, nil
}

// narrowest is the smallest MTU of the node's devices: what leaves the namespace then fits into every one of them, and no
// datagram is lost until its sender has learnt how long the way lets it be. What TCP sends in large pieces stays large.
func (m *room) narrowest() (int, error) {
	const usual, least = 1500, 1280
	links, err := m.node.LinkList()
	if err != nil {
		return 0, fmt.Errorf("list the node's interfaces: %w", err)
	}
	mtu := usual
	for _, l := range links {
		if a := l.Attrs(); a.Flags&net.FlagUp != 0 && a.Flags&net.FlagLoopback == 0 && a.MTU >= least {
			mtu = min(mtu, a.MTU)
		}
	}
	return mtu, nil
}

// ip6AddrGenNone is IN6_ADDR_GEN_MODE_NONE: no link-local address, and none of router advertisements.
const ip6AddrGenNone = 1

// do runs something inside the namespace: sockets that it makes stay there.
func (m *room) do(f func() error) error {
	return alone(func() error {
		if err := unix.Setns(m.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// alone runs something on a thread of its own, which ends with it: whatever it enters, nobody else is there.
func alone(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// RemoveRoutes removes the entries of the local routing table that a relay left which was killed (ReachLocal; of
// ReachNamespace nothing is left). It says which addresses they were for.
func RemoveRoutes() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: RouteProtocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return out, fmt.Errorf("read the local routing table: %w", err)
		}
		for i := range routes {
			if routes[i].Dst == nil || routes[i].Type != unix.RTN_LOCAL {
				continue
			}
			if err := gone(netlink.RouteDel(&routes[i])); err != nil {
				return out, fmt.Errorf("remove route %s: %w (run as root)", routes[i].Dst, err)
			}
			if a, ok := netip.AddrFromSlice(routes[i].Dst.IP); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	return out, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
