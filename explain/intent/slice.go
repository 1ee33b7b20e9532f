package intent

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// indexEndpoints sorts what the proxy reads endpoints from by Service. It is true when there is nothing to
// read from, so that no endpoint is known.
func (b *planner) indexEndpoints() (unknown bool) {
	useSlices := b.readsSlices()
	haveSlices := len(b.in.Slices) > 0 || b.in.SlicesRead
	switch {
	case !haveSlices && len(b.in.Endpoints) == 0:
		b.note(Note{Kind: NoteNoEndpointSource, Text: "the evidence holds neither EndpointSlices nor Endpoints: which backends Services ought to have is not known"})
		return true
	case useSlices && !haveSlices:
		useSlices = false
		b.note(Note{Kind: NoteEndpointsAsSource, Text: "the evidence holds no EndpointSlices: Endpoints stand in for them, without conditions, zones and hints"})
	case !useSlices && len(b.in.Endpoints) == 0:
		useSlices = true
		b.note(Note{Kind: NoteSlicesAsSource, Text: b.endpointsReader() + " reads Endpoints; the evidence holds none, EndpointSlices stand in for them"})
	}
	b.slices = map[serviceKey][]*discoveryv1.EndpointSlice{}
	b.legacy = map[serviceKey][]*corev1.Endpoints{}
	if !useSlices {
		for _, ep := range b.in.Endpoints {
			if ep != nil {
				key := serviceKey{ep.Namespace, ep.Name}
				b.legacy[key] = append(b.legacy[key], ep)
			}
		}
		return false
	}
	for _, slice := range b.in.Slices {
		if slice != nil && b.readable(slice) {
			key := serviceKey{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}
			b.slices[key] = append(b.slices[key], slice)
		}
	}
	for _, of := range b.slices {
		slices.SortStableFunc(of, func(x, y *discoveryv1.EndpointSlice) int { return cmp.Compare(x.Name, y.Name) })
	}
	return false
}

// readsSlices says whether the proxy reads EndpointSlices: never in userspace mode, and on Windows two releases later
// than on Linux (WindowsEndpointSliceProxying).
func (b *planner) readsSlices() bool {
	switch b.in.Proxy.Mode {
	case modeUserspace:
		return false
	case modeKernelspace:
		return b.does(readsSlicesOnWindows)
	}
	return b.does(readsSlices)
}

// endpointsReader names the proxies that read Endpoints.
func (b *planner) endpointsReader() string {
	switch b.in.Proxy.Mode {
	case modeUserspace:
		return "kube-proxy in userspace mode"
	case modeKernelspace:
		return "kube-proxy up to 1.20 on Windows"
	}
	return "kube-proxy up to 1.18"
}

// readable says whether the proxy sees a slice and finds a Service's name on it.
func (b *planner) readable(slice *discoveryv1.EndpointSlice) bool {
	n := Note{Namespace: slice.Namespace, Service: slice.Labels[discoveryv1.LabelServiceName], Slice: slice.Name, Evidence: b.evidence(slice)}
	_, otherProxy := slice.Labels[labelProxyName]
	_, headless := slice.Labels[labelHeadless]
	switch {
	case otherProxy && !b.does(splitSelectors):
		n.Kind = NoteSliceHidden
		n.Text = fmt.Sprintf("EndpointSlice %s/%s carries the label %s: kube-proxy up to 1.35 does not see it", slice.Namespace, slice.Name, labelProxyName)
	case headless: // on purpose: the controller marks the slices of headless Services
		return false
	case n.Service == "":
		n.Kind = NoteSliceUnlabelled
		n.Text = fmt.Sprintf("EndpointSlice %s/%s has no label %s: it belongs to no Service", slice.Namespace, slice.Name, discoveryv1.LabelServiceName)
	default:
		return true
	}
	b.note(n)
	return false
}

// noteOrphans notes slices that name a Service which is not there.
func (b *planner) noteOrphans(services map[serviceKey]bool) {
	for key, of := range b.slices {
		if services[key] {
			continue
		}
		for _, slice := range of {
			b.note(Note{Kind: NoteSliceOrphan, Namespace: slice.Namespace, Service: key.name, Slice: slice.Name, Evidence: b.evidence(slice),
				Text: fmt.Sprintf("EndpointSlice %s/%s belongs to Service %s, which is not in the evidence", slice.Namespace, slice.Name, key.name)})
		}
	}
}

// fillEndpoints lists the endpoints of one port of a Service.
func (b *planner) fillEndpoints(svc *corev1.Service, sp *ServicePort) {
	key := serviceKey{svc.Namespace, svc.Name}
	list := endpointList{at: map[netip.AddrPort]int{}}
	if of := b.legacy[key]; len(of) > 0 {
		for _, ep := range of {
			b.fromEndpoints(ep, sp, &list)
		}
	}
	named := false // some slice has a port of this name
	var offered []string
	for _, slice := range b.slices[key] {
		if !b.sliceFits(slice, sp) {
			continue
		}
		for i, port := range slice.Ports {
			number, name, ok := b.slicePort(slice, i)
			if !ok {
				continue
			}
			if name != sp.PortName || protocolOf(port.Protocol) != sp.Protocol {
				offered = append(offered, fmt.Sprintf("%q/%s", name, protocolOf(port.Protocol)))
				continue
			}
			named = true
			list.all = slices.Grow(list.all, len(slice.Endpoints))
			for j := range slice.Endpoints {
				if ep, ok := b.sliceEndpoint(slice, j, number, sp); ok {
					b.add(sp, &list, ep)
				}
			}
		}
	}
	if !named && len(offered) > 0 {
		slices.Sort(offered)
		b.note(Note{Kind: NotePortMismatch, Namespace: svc.Namespace, Service: svc.Name, Port: sp.PortName, Protocol: sp.Protocol, Family: sp.Family, Evidence: sp.Evidence,
			Text: fmt.Sprintf("no EndpointSlice of %s/%s has a port %q/%s; they have %s", svc.Namespace, svc.Name, sp.PortName, sp.Protocol, strings.Join(slices.Compact(offered), ", "))})
	}
	sp.Endpoints = list.sorted()
}

// sliceFits says whether a slice is of the port's family and has something to give.
func (b *planner) sliceFits(slice *discoveryv1.EndpointSlice, sp *ServicePort) bool {
	n := Note{Namespace: slice.Namespace, Service: sp.Name, Slice: slice.Name, Evidence: b.evidence(slice)}
	switch slice.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		if (slice.AddressType == discoveryv1.AddressTypeIPv6) != (sp.Family == 6) {
			return false
		}
	default:
		n.Kind = NoteSliceAddressType
		n.Text = fmt.Sprintf("EndpointSlice %s/%s has the address type %q: kube-proxy reads IPv4 and IPv6 only", slice.Namespace, slice.Name, slice.AddressType)
		b.note(n)
		return false
	}
	if len(slice.Ports) == 0 && len(slice.Endpoints) > 0 {
		n.Kind = NoteSliceWithoutPorts
		n.Text = fmt.Sprintf("EndpointSlice %s/%s lists addresses but no ports: kube-proxy uses none of them", slice.Namespace, slice.Name)
		b.note(n)
	}
	return len(slice.Ports) > 0
}

// slicePort reads the i-th port of a slice. The number is the slice's own: with a named targetPort it may
// differ from slice to slice, which is how pods with different ports stand behind one Service.
func (b *planner) slicePort(slice *discoveryv1.EndpointSlice, i int) (number int, name string, ok bool) {
	port := slice.Ports[i]
	missing := ""
	switch {
	case port.Name == nil:
		missing = "name"
	case port.Port == nil || *port.Port == 0:
		missing = "number"
	case *port.Port < 0 || *port.Port > 65535:
		missing = "valid number"
	}
	if missing != "" {
		b.note(Note{Kind: NotePortIgnored, Namespace: slice.Namespace, Service: slice.Labels[discoveryv1.LabelServiceName], Slice: slice.Name, Evidence: b.evidence(slice),
			Text: fmt.Sprintf("port %d of EndpointSlice %s/%s has no %s: kube-proxy ignores it", i+1, slice.Namespace, slice.Name, missing)})
		return 0, "", false
	}
	return int(*port.Port), *port.Name, true
}

// sliceEndpoint reads the j-th endpoint of a slice for one port.
func (b *planner) sliceEndpoint(slice *discoveryv1.EndpointSlice, j, port int, sp *ServicePort) (Endpoint, bool) {
	e := &slice.Endpoints[j]
	n := Note{Namespace: slice.Namespace, Service: sp.Name, Slice: slice.Name, Evidence: b.evidence(slice)}
	if len(e.Addresses) == 0 {
		n.Kind = NoteNoAddress
		n.Text = fmt.Sprintf("endpoint %d of EndpointSlice %s/%s has no address", j+1, slice.Namespace, slice.Name)
		b.note(n)
		return Endpoint{}, false
	}
	addr, ok := parseAddr(e.Addresses[0])
	n.Endpoint = e.Addresses[0]
	if !ok {
		n.Kind = NoteUnreadableAddress
		n.Text = fmt.Sprintf("endpoint %d of EndpointSlice %s/%s: %q is no address", j+1, slice.Namespace, slice.Name, e.Addresses[0])
		b.note(n)
		return Endpoint{}, false
	}
	if family(addr) != sp.Family {
		n.Kind = NoteFamilyMismatch
		n.Text = fmt.Sprintf("endpoint %s of EndpointSlice %s/%s is not of the slice's address type %s: kube-proxy ignores it", addr, slice.Namespace, slice.Name, slice.AddressType)
		b.note(n)
		return Endpoint{}, false
	}
	if len(e.Addresses) > 1 {
		n.Kind = NoteExtraAddresses
		n.Text = fmt.Sprintf("an endpoint of EndpointSlice %s/%s has %d addresses: kube-proxy uses %s and ignores %s",
			slice.Namespace, slice.Name, len(e.Addresses), addr, strings.Join(e.Addresses[1:], ", "))
		b.note(n)
	}
	out := Endpoint{
		Addr: addr, Port: port,
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		Slice:       slice.Name,
		Evidence:    n.Evidence,
	}
	switch {
	case e.NodeName != nil:
		out.NodeName = *e.NodeName
	case !b.does(nodeNameOnly):
		out.NodeName = e.DeprecatedTopology[corev1.LabelHostname]
	}
	out.Local = b.node.name != "" && out.NodeName == b.node.name
	if out.Zone = e.DeprecatedTopology[corev1.LabelTopologyZone]; e.Zone != nil {
		out.Zone = *e.Zone
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.HintZones = append(out.HintZones, z.Name)
		}
		for _, h := range e.Hints.ForNodes {
			out.HintNodes = append(out.HintNodes, h.Name)
		}
	}
	out.Pod = podName(e.TargetRef, slice.Namespace)
	return out, true
}

// fromEndpoints reads an object of the old Endpoints API, in which addresses are ready, notReadyAddresses
// are not, and nothing is said of termination.
func (b *planner) fromEndpoints(ep *corev1.Endpoints, sp *ServicePort, list *endpointList) {
	where := b.evidence(ep)
	for _, subset := range ep.Subsets {
		for _, port := range subset.Ports {
			if port.Name != sp.PortName || protocol(port.Protocol) != sp.Protocol || port.Port <= 0 || port.Port > 65535 {
				continue
			}
			take := func(addrs []corev1.EndpointAddress, ready bool) {
				for _, a := range addrs {
					addr, ok := parseAddr(a.IP)
					if !ok {
						b.note(Note{Kind: NoteUnreadableAddress, Namespace: ep.Namespace, Service: ep.Name, Slice: ep.Name, Endpoint: a.IP, Evidence: where,
							Text: fmt.Sprintf("Endpoints %s/%s: %q is no address", ep.Namespace, ep.Name, a.IP)})
						continue
					}
					if family(addr) != sp.Family {
						continue
					}
					e := Endpoint{Addr: addr, Port: int(port.Port), Ready: ready, Serving: ready, Slice: ep.Name, Evidence: where,
						Pod: podName(a.TargetRef, ep.Namespace)}
					if a.NodeName != nil {
						e.NodeName = *a.NodeName
					}
					e.Local = b.node.name != "" && e.NodeName == b.node.name
					b.add(sp, list, e)
				}
			}
			take(subset.Addresses, true)
			take(subset.NotReadyAddresses, false)
		}
	}
}

// endpointList holds each address:port once.
type endpointList struct {
	all []Endpoint
	at  map[netip.AddrPort]int
}

// add puts an endpoint on the list. Of copies with the same address:port up to 1.35 a local one replaces
// what was there (up to 1.20 among those that are ready: others were not kept at all); from 1.36 on one
// that is not terminating does. Slices are read in random order, so that
// with several such copies anything can win: here the order is that of the slices' names.
func (b *planner) add(sp *ServicePort, list *endpointList, ep Endpoint) {
	key := netip.AddrPortFrom(ep.Addr, uint16(ep.Port))
	i, taken := list.at[key]
	if !taken {
		list.at[key] = len(list.all)
		list.all = append(list.all, ep)
		return
	}
	have := list.all[i]
	replaces := ep.Local
	switch {
	case b.does(notTerminatingWins):
		replaces = !ep.Terminating
	case !b.does(keepsUnready) && have.Ready != ep.Ready:
		replaces = ep.Ready
	}
	if replaces {
		list.all[i] = ep
	}
	if differs := have.Ready != ep.Ready || have.Terminating != ep.Terminating || have.Serving != ep.Serving || have.Local != ep.Local; differs {
		// Slices come out of a Go map: which copy is read last is chance, unless the rule makes up for it.
		sp.ByChance = sp.ByChance || !b.does(notTerminatingWins) || have.Terminating == ep.Terminating
	}
	text := fmt.Sprintf("%s is listed twice for %s, in %s and %s", key, sp.Key(), have.Slice, ep.Slice)
	if have.Pod != ep.Pod {
		text += fmt.Sprintf(" (pods %s and %s)", orNone(have.Pod), orNone(ep.Pod))
	}
	if have.Ready != ep.Ready || have.Terminating != ep.Terminating || have.Local != ep.Local {
		text += "; they differ in their conditions"
	}
	b.note(Note{Kind: NoteEndpointTwice, Namespace: sp.Namespace, Service: sp.Name, Port: sp.PortName, Protocol: sp.Protocol, Family: sp.Family,
		Slice: ep.Slice, Endpoint: key.String(), Text: text, Evidence: ep.Evidence})
}

// sorted gives endpoints the order that kube-proxy gives them: that of the text "address:port", in which
// 10.0.0.10:80 comes before 10.0.0.9:80.
func (l *endpointList) sorted() []Endpoint {
	slices.SortFunc(l.all, func(x, y Endpoint) int {
		var a, b [64]byte // enough but for a zone
		return bytes.Compare(x.addrPort().AppendTo(a[:0]), y.addrPort().AppendTo(b[:0]))
	})
	return l.all
}

// String is "address:port", with brackets for IPv6.
func (e Endpoint) String() string { return e.addrPort().String() }

func (e Endpoint) addrPort() netip.AddrPort { return netip.AddrPortFrom(e.Addr, uint16(e.Port)) }

func podName(ref *corev1.ObjectReference, namespace string) string {
	if ref == nil || ref.Kind != "Pod" || ref.Name == "" {
		return ""
	}
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	return namespace + "/" + ref.Name
}

func protocolOf(p *corev1.Protocol) string {
	if p == nil {
		return string(corev1.ProtocolTCP)
	}
	return protocol(*p)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
