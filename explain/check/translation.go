package check

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/dataplane"
	"github.com/svcnet/svcnet/explain/report"
)

// origin tells how a backend that no slice lists came to get traffic.
type origin uint8

const (
	// ownStale: the proxy's own chain for that very endpoint, which was one once.
	ownStale origin = iota
	// ownWrong: a chain of the proxy's that stands for another endpoint, or for another Service.
	ownWrong
	// foreign: a rule that is none of the proxy's.
	foreign
	// tracked: an entry of connection tracking, made when it was an endpoint.
	tracked
)

// whose tells what leads to a backend that the Service does not mean.
func (p *Port) whose(b *report.Backend) origin {
	if byHNS(b) {
		return p.whoseInHNS(b)
	}
	by := b.TranslatedBy
	if key, _, endpoint, ok := dataplane.ServicePortOfNFT(by); ok {
		// The chain of a Service names the Service, that of an endpoint the endpoint too.
		if key != p.Key() || endpoint.IsValid() && endpoint.String() != joinAddr(b) {
			return ownWrong
		}
		return ownStale
	}
	switch {
	case by == virtualServer:
		return ownStale
	case by == "conntrack":
		return tracked
	case !strings.HasPrefix(by, "KUBE-"):
		if by == "" {
			return ownStale
		}
		return foreign
	case !strings.HasPrefix(by, dataplane.SEPPrefix):
		return ownWrong
	}
	a, err := netip.ParseAddr(b.Address)
	if err != nil {
		return ownStale
	}
	ap := netip.AddrPortFrom(a, uint16(b.Port))
	if _, ok := dataplane.EndpointByName(by, p.Key(), p.Protocol, []netip.AddrPort{ap}); ok {
		return ownStale
	}
	return ownWrong
}

// strays are the backends that no slice lists and that came to get traffic in a certain way.
func (p *Port) strays(by origin) []*byEndpoint {
	return slices.DeleteFunc(p.endpoints("stale"), func(e *byEndpoint) bool { return p.whose(e.first) != by })
}

// standsFor is the endpoint that a chain is named for, as far as it is one of the Service's.
func (p *Port) standsFor(chain string) (netip.AddrPort, bool) {
	var all []netip.AddrPort
	for i := range p.Endpoints {
		all = append(all, netip.AddrPortFrom(p.Endpoints[i].Addr, uint16(p.Endpoints[i].Port)))
	}
	return dataplane.EndpointByName(chain, p.Key(), p.Protocol, all)
}
