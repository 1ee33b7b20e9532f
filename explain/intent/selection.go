package intent

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// choose fills the lists that the traffic policies use. Both hold ready endpoints; where there is none,
// from 1.26 on those that still serve while they terminate. Topology narrows the Cluster list only.
func (b *planner) choose(svc *corev1.Service, sp *ServicePort) {
	switch b.in.Proxy.Mode {
	case modeUserspace:
		sp.chooseReady()
		return
	case modeKernelspace:
		b.chooseForHNS(svc, sp)
		return
	}
	if !b.does(twoLists) {
		b.chooseOneList(svc, sp)
		return
	}
	usesCluster := !sp.InternalLocal || sp.reachableFromOutside()
	usesLocal := sp.InternalLocal || sp.ExternalLocal && sp.reachableFromOutside()
	if usesCluster {
		sp.Cluster = b.narrow(svc, sp, sp.where(ready))
		if len(sp.Cluster) == 0 && b.does(terminatingFallback) {
			sp.Cluster = sp.where(leaving)
		}
	}
	if usesLocal {
		sp.Local = sp.where(local, ready)
		if len(sp.Local) == 0 && b.does(terminatingFallback) {
			sp.Local = sp.where(local, leaving)
		}
	}
	sp.Usable = sp.where(ready)
	if len(sp.Usable) == 0 && b.does(terminatingFallback) {
		sp.Usable = sp.where(leaving)
	}
}

// chooseOneList is how it was up to 1.23: one list for all traffic of the Service, cut down to this node by
// internalTrafficPolicy Local (1.22 and 1.23) unless externalTrafficPolicy is Local; Local traffic takes
// the local part of it.
func (b *planner) chooseOneList(svc *corev1.Service, sp *ServicePort) {
	switch {
	case sp.ExternalLocal:
		sp.Cluster = sp.where(ready)
		sp.Local = sp.where(local, ready)
	case sp.InternalLocal:
		sp.Cluster = sp.where(local, ready)
		sp.Local = sp.Cluster
	default:
		sp.Cluster = b.narrow(svc, sp, sp.where(ready))
	}
	sp.Usable = sp.Cluster
}

// where returns the indexes of the endpoints for which every test holds.
func (s *ServicePort) where(tests ...func(*Endpoint) bool) []int {
	var out []int
next:
	for i := range s.Endpoints {
		for _, test := range tests {
			if !test(&s.Endpoints[i]) {
				continue next
			}
		}
		out = append(out, i)
	}
	return out
}

func ready(e *Endpoint) bool   { return e.Ready }
func local(e *Endpoint) bool   { return e.Local }
func leaving(e *Endpoint) bool { return e.Serving && e.Terminating }

// narrow applies topology hints to a list of ready endpoints and tells in TopologyNote what it left out.
// Hints count only if every ready endpoint has one and one of them names this node (or zone); otherwise
// all ready endpoints stay.
func (b *planner) narrow(svc *corev1.Service, sp *ServicePort, all []int) []int {
	if !sp.hasHints(all) || !b.hintsOn(svc) {
		return all
	}
	if b.does(nodeHints) {
		if kept := sp.hinted(all, nodesOf, b.node.name); kept != nil {
			sp.TopologyNote = topologyNote(len(all)-len(kept), fmt.Sprintf("the slices hint %s for node %s only (trafficDistribution PreferSameNode)", count(len(kept)), b.node.name))
			return kept
		}
	}
	if !b.node.zoneKnown {
		if sp.hasZoneHints(all) {
			b.note(Note{Kind: NoteZoneUnknown, Namespace: sp.Namespace, Service: sp.Name, Port: sp.PortName, Protocol: sp.Protocol, Family: sp.Family, Evidence: sp.Evidence,
				Text: fmt.Sprintf("the endpoints of %s carry zone hints, but the node's zone is not known: all ready endpoints are expected", sp.Key())})
		}
		return all
	}
	if kept := sp.hinted(all, zonesOf, b.node.zone); kept != nil {
		sp.TopologyNote = topologyNote(len(all)-len(kept), fmt.Sprintf("the slices hint %s for zone %s", count(len(kept)), b.node.zone))
		return kept
	}
	return all
}

// hintsOn says whether the version looks at hints of this Service: from 1.31 on always, before that if the
// annotation turns them on (up to 1.26 with exactly Auto or auto). The older annotation comes first.
func (b *planner) hintsOn(svc *corev1.Service) bool {
	if b.does(hintsWithoutAnnotation) {
		return true
	}
	if !b.does(zoneHints) {
		return false
	}
	value, ok := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !b.does(anyHintsAnnotation) {
		return value == "Auto" || value == "auto"
	}
	if !ok {
		value = svc.Annotations[corev1.AnnotationTopologyMode]
	}
	return value != "" && value != "Disabled" && value != "disabled"
}

func zonesOf(e *Endpoint) []string { return e.HintZones }
func nodesOf(e *Endpoint) []string { return e.HintNodes }

// hinted keeps the endpoints that are hinted for a place; nil when the hints do not count.
func (s *ServicePort) hinted(all []int, hints func(*Endpoint) []string, place string) []int {
	if place == "" {
		return nil
	}
	var kept []int
	for _, i := range all {
		names := hints(&s.Endpoints[i])
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			if name == place {
				kept = append(kept, i)
				break
			}
		}
	}
	return kept
}

func (s *ServicePort) hasHints(all []int) bool {
	return slices.ContainsFunc(all, func(i int) bool {
		return len(s.Endpoints[i].HintZones) > 0 || len(s.Endpoints[i].HintNodes) > 0
	})
}

func (s *ServicePort) hasZoneHints(all []int) bool {
	for _, i := range all {
		if len(s.Endpoints[i].HintZones) == 0 {
			return false
		}
	}
	return true
}

func topologyNote(left int, why string) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("%s left out on this node: %s", countReady(left), why)
}

func count(n int) string {
	if n == 1 {
		return "1 endpoint"
	}
	return fmt.Sprintf("%d endpoints", n)
}

func countReady(n int) string {
	if n == 1 {
		return "1 ready endpoint is"
	}
	return fmt.Sprintf("%d ready endpoints are", n)
}
