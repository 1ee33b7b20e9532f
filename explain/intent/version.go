package intent

import (
	"fmt"
	"math"

	"github.com/svcnet/svcnet/explain/traits"
)

// behaviour is something that kube-proxy does in some versions and not in others.
type behaviour int

// The behaviours. Feature gates count as what they are by default.
const (
	readsSlices               behaviour = iota // EndpointSlices instead of Endpoints (default on Linux 1.19)
	readsSlicesOnWindows                       // the same on Windows (WindowsEndpointSliceProxying)
	keepsUnready                               // endpoints that are not ready stay in the list
	nodeNameOnly                               // the hostname in an endpoint's topology no longer stands for its node
	notTerminatingWins                         // of two copies of an address, one that is not terminating replaces the other
	terminatingFallback                        // serving and terminating endpoints when none is ready (ProxyTerminatingEndpoints)
	internalPolicy                             // internalTrafficPolicy is looked at (ServiceInternalTrafficPolicy)
	twoLists                                   // a Cluster and a Local list; before, one list that the policies cut down for all traffic
	zoneHints                                  // hints for zones are looked at (TopologyAwareHints)
	anyHintsAnnotation                         // any value of the annotation but "disabled" turns hints on
	hintsWithoutAnnotation                     // hints are trusted as they are (ServiceTrafficDistribution)
	nodeHints                                  // hints for nodes come before hints for zones (PreferSameTrafficDistribution)
	splitSelectors                             // Services are chosen by service-proxy-name only, slices by the headless label only
	honoursIPMode                              // ipMode Proxy keeps a load balancer address out of the rules (LoadBalancerIPMode)
	zeroRangeOpens                             // a source range /0 means no restriction
	externalIPPolicy                           // externalTrafficPolicy holds for externalIPs (ExternalPolicyForExternalIP)
	plainExternalIP                            // externalIPs are matched without the tests for bridge and local source
	externalChains                             // KUBE-EXT and KUBE-SVL chains; before, KUBE-XLB
	localShortcutForNode                       // the node itself gets Cluster behaviour under policy Local
	filterDrops                                // traffic without a local endpoint is dropped in the filter table
	filterFirewall                             // source ranges are enforced in the filter table
	loadBalancerRejectOutside                  // REJECT for load balancer addresses stands in KUBE-EXTERNAL-SERVICES
	externalRejectForwarded                    // KUBE-EXTERNAL-SERVICES is reached from FORWARD
	noLoopbackNodePort6                        // NodePorts are not served on ::1
	localhostOption                            // iptables.localhostNodePorts exists
	healthCheckOnNodePortAddr                  // health check ports listen on nodePortAddresses only
	ipvsClusterFallback                        // IPVS: Cluster endpoints where a Local policy has none
	ipvsOutputFirewall                         // IPVS: source ranges hold for the node's own connections
)

// behaviours says in which minor versions of Kubernetes 1 a behaviour is found.
var behaviours = [...]int{
	readsSlices:               19,
	readsSlicesOnWindows:      21,
	keepsUnready:              21,
	nodeNameOnly:              22,
	notTerminatingWins:        36,
	terminatingFallback:       26,
	internalPolicy:            22,
	twoLists:                  24,
	zoneHints:                 24,
	anyHintsAnnotation:        27,
	hintsWithoutAnnotation:    31,
	nodeHints:                 34,
	splitSelectors:            36,
	honoursIPMode:             30,
	zeroRangeOpens:            34,
	externalIPPolicy:          19,
	plainExternalIP:           21,
	externalChains:            24,
	localShortcutForNode:      15,
	filterDrops:               25,
	filterFirewall:            25,
	loadBalancerRejectOutside: 20,
	externalRejectForwarded:   20,
	noLoopbackNodePort6:       26,
	localhostOption:           26,
	healthCheckOnNodePortAddr: 23,
	ipvsClusterFallback:       24,
	ipvsOutputFirewall:        29,
}

// oldestMinor is the oldest version whose rules are known here.
const oldestMinor = 14

// release is a kube-proxy version of Kubernetes 1; patch is -1 when not known.
type release struct{ minor, patch int }

// newest stands for a version that is not known: it does what the newest does.
var newest = release{minor: math.MaxInt, patch: -1}

// does says whether this version has the behaviour.
func (r release) does(b behaviour) bool { return r.minor >= behaviours[b] }

func (r release) String() string {
	if r == newest {
		return "newest"
	}
	return fmt.Sprintf("1.%d", r.minor)
}

// releaseOf turns a version into a release; an unknown one counts as the newest.
func releaseOf(v traits.Version) release {
	if v.Major != 1 || v.Minor <= 0 {
		return newest
	}
	return release{minor: v.Minor, patch: v.Patch}
}

// releases are the bounds of what the proxy's version can be: both the same unless the version is a range
// that was read off the rules. A range is cut to versions whose rules are known here.
func releases(p traits.Proxy) (low, high release) {
	if !p.VersionFromRules {
		r := releaseOf(p.Version)
		return r, r
	}
	high = releaseOf(p.Newest)
	low = releaseOf(p.Version)
	if low.minor > high.minor || low == newest {
		low = high
	}
	if low.minor < oldestMinor && high.minor > oldestMinor {
		low = release{minor: oldestMinor, patch: -1}
	}
	return low, high
}
