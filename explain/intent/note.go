package intent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Note is something odd about the objects that changes what is programmed, or that people expect to
// change it and does not. Checks turn notes into findings.
type Note struct {
	Kind               NoteKind
	Namespace, Service string
	// Port is the port's name, Protocol its protocol, Family 4 or 6; empty and 0 where the note is about all.
	Port, Protocol string
	Family         int
	// Slice is the EndpointSlice or Endpoints object, Endpoint an address or "address:port"; empty where
	// the note is not about one.
	Slice, Endpoint string
	// Text is one sentence for people.
	Text string
	Evidence
}

// NoteKind is a kind of note.
type NoteKind string

// The kinds.
const (
	// About Services.
	NoteServiceTwice          NoteKind = "service-twice"
	NoteFamilyMismatch        NoteKind = "address-family-mismatch"   // an external, load balancer or endpoint address or source range of another family
	NoteUnreadableAddress     NoteKind = "unreadable-address"        // an address or range that does not parse
	NoteHostnameOnly          NoteKind = "load-balancer-hostname"    // an ingress with a name and no address
	NoteIPModeProxy           NoteKind = "ip-mode-proxy"             // an ingress that the proxy leaves to the load balancer
	NoteRangesOpen            NoteKind = "source-ranges-open"        // ranges that restrict nothing in a family
	NoteExternalTwice         NoteKind = "external-address-twice"    // two Services claim one address and port
	NoteNodePortTwice         NoteKind = "node-port-twice"           // one node port for two purposes
	NoteInternalPolicyIgnored NoteKind = "internal-policy-ignored"   // internalTrafficPolicy has no effect in this version
	NoteHealthCheckMissing    NoteKind = "health-check-port-missing" // policy Local and type LoadBalancer without a healthCheckNodePort

	// About endpoints.
	NoteSliceHidden       NoteKind = "slice-hidden"             // a label hides the slice from this proxy
	NoteSliceUnlabelled   NoteKind = "slice-without-service"    // no kubernetes.io/service-name label
	NoteSliceOrphan       NoteKind = "slice-of-no-service"      // the label names a Service that is not there
	NoteSliceAddressType  NoteKind = "slice-address-type"       // FQDN or unknown
	NoteSliceWithoutPorts NoteKind = "slice-without-ports"      // nothing to translate to
	NotePortIgnored       NoteKind = "slice-port-ignored"       // a port without name or number
	NotePortMismatch      NoteKind = "port-name-mismatch"       // slices exist but none has this port
	NoteEndpointTwice     NoteKind = "endpoint-twice"           // one address:port more than once
	NoteExtraAddresses    NoteKind = "endpoint-extra-addresses" // addresses after the first one
	NoteNoAddress         NoteKind = "endpoint-without-address"
	NoteEndpointsAsSource NoteKind = "endpoints-as-source" // Endpoints were read instead of slices
	NoteSlicesAsSource    NoteKind = "slices-as-source"    // slices were read although this version reads Endpoints
	NoteNoEndpointSource  NoteKind = "endpoints-unknown"   // neither was given

	// About the node and the proxy.
	NoteNodeAddrsFromObject NoteKind = "node-addresses-from-object"
	NoteNodeAddrsUnknown    NoteKind = "node-addresses-unknown"
	NoteNodeIPUnknown       NoteKind = "node-ip-unknown"
	NoteNodeNameUnknown     NoteKind = "node-name-unknown"
	NoteZoneUnknown         NoteKind = "zone-unknown" // hints name zones, the node's is not known
	NoteVersionMatters      NoteKind = "version-matters"
)

func (b *planner) note(n Note) { b.plan.Notes = append(b.plan.Notes, n) }

// sortNotes gives notes their order and drops repetitions (both families tell the same of one object).
func (p *Plan) sortNotes() {
	slices.SortStableFunc(p.Notes, func(x, y Note) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Service, y.Service),
			cmp.Compare(x.Family, y.Family), cmp.Compare(x.Slice, y.Slice), cmp.Compare(x.Text, y.Text))
	})
	p.Notes = slices.CompactFunc(p.Notes, func(x, y Note) bool { return x == y })
}

// claim is a port number taken on an address.
type claim struct {
	addr     netip.Addr
	port     int
	protocol string
}

// noteClaims notes addresses and node ports that are taken twice. Services are programmed in random order,
// so that in iptables mode the one whose rule comes first wins, and this may change with every sync.
func (b *planner) noteClaims() {
	addresses, ports := map[claim]*ServicePort{}, map[claim]*ServicePort{}
	uses := map[claim]string{}
	take := func(sp *ServicePort, c claim, use string) {
		first, taken := ports[c]
		if !taken {
			ports[c], uses[c] = sp, use
			return
		}
		if use == "healthCheckNodePort" && uses[c] == use && first.Namespace == sp.Namespace && first.Name == sp.Name {
			return // every port of a Service carries the same one
		}
		b.note(Note{Kind: NoteNodePortTwice, Namespace: sp.Namespace, Service: sp.Name, Port: sp.PortName, Protocol: sp.Protocol,
			Family: sp.Family, Evidence: sp.Evidence,
			Text: fmt.Sprintf("port %d/%s is the %s of %s and the %s of %s", c.port, c.protocol, uses[c], first.Key(), use, sp.Key())})
	}
	for _, sp := range b.plan.Ports {
		for _, f := range sp.Frontends {
			if f.Kind != ExternalIP && f.Kind != LoadBalancer {
				continue
			}
			c := claim{f.Addr, f.Port, sp.Protocol}
			first, taken := addresses[c]
			if !taken {
				addresses[c] = sp
			} else if first != sp { // the same when an address is both an externalIP and a load balancer address
				at := netip.AddrPortFrom(f.Addr, uint16(f.Port))
				b.note(Note{Kind: NoteExternalTwice, Namespace: sp.Namespace, Service: sp.Name, Port: sp.PortName, Protocol: sp.Protocol,
					Family: sp.Family, Endpoint: at.String(), Evidence: sp.Evidence,
					Text: fmt.Sprintf("%s/%s is claimed by both %s and %s; which of them gets it can change with every sync", at, sp.Protocol, first.Key(), sp.Key())})
			}
		}
		// The two families have separate rules; an unspecified address tells them apart.
		wildcard := netip.IPv4Unspecified()
		if sp.Family == 6 {
			wildcard = netip.IPv6Unspecified()
		}
		if sp.NodePort != 0 {
			take(sp, claim{wildcard, sp.NodePort, sp.Protocol}, "nodePort")
		}
		if sp.HealthCheckNodePort != 0 {
			take(sp, claim{wildcard, sp.HealthCheckNodePort, "TCP"}, "healthCheckNodePort")
		}
	}
}
