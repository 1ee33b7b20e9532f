package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// sourceRangesExcludeCluster: the loadBalancerSourceRanges keep pods or nodes of the cluster from the load balancer's
// address. The rules then do what the Service says.
var sourceRangesExcludeCluster = Check{
	ID: "source-ranges-exclude-cluster", Rests: onGrid, Severity: Info,
	Title: "load balancer addresses whose source ranges keep clients of the cluster out",
	Port: func(p *Port) []report.Finding {
		if len(p.SourceRanges) == 0 {
			return nil
		}
		var who, addresses []string
		var evidence []report.Evidence
		for _, paths := range p.Cells {
			first := &paths[0]
			client, ok := insiders[intent.Class(first.SourceClass)]
			if !ok || first.Frontend.Kind != string(intent.LoadBalancer) || !p.excludes(first) || certain(paths) && getsThrough(first.Result) {
				continue
			}
			who = once(who, client)
			addresses = once(addresses, first.Frontend.Address)
			if len(evidence) == 0 && first.Result == report.ResultDrop {
				evidence = verdict(first)
			}
		}
		if len(who) == 0 {
			return nil
		}
		ranges := make([]string, len(p.SourceRanges))
		for i, r := range p.SourceRanges {
			ranges[i] = r.String()
		}
		clients := strings.Join(who, " and ")
		return []report.Finding{{
			Subject:  strings.Join(addresses, ", "),
			Message:  fmt.Sprintf("the loadBalancerSourceRanges of %s [%s] do not hold %s: connections from there to %s are dropped, as the Service says", p.Key(), strings.Join(ranges, " "), clients, strings.Join(addresses, ", ")),
			Want:     "ranges that hold every client that is meant to use the load balancer's address",
			Got:      "dropped from " + clients,
			Evidence: append(evidence, p.objectEvidence()),
			Causes:   []string{"connections from inside of the cluster to the load balancer's address do not leave it: kube-proxy itself enforces the ranges on them"},
			Remedy:   "use the ClusterIP inside of the cluster, or add the ranges of pods and nodes to loadBalancerSourceRanges",
		}}
	},
}

// insiders are the clients of the cluster that this node itself serves.
var insiders = map[intent.Class]string{intent.LocalPod: "pods", intent.Node: "the nodes"}

// getsThrough is true of clients that are not kept out, whatever the Service says: a matter of refusal-missing.
func getsThrough(result report.Result) bool {
	return result == report.ResultNoMatch || translates(result)
}

// excludes tells whether the source ranges are what the objects ask this client to be dropped for.
func (p *Port) excludes(path *report.Path) bool {
	source := path.Source
	if ap, err := netip.ParseAddrPort(source); err == nil {
		source = ap.Addr().String()
	}
	a, err := netip.ParseAddr(source)
	if err != nil || path.Intended == nil || path.Intended.Result != report.ResultDrop {
		return false
	}
	for _, r := range p.SourceRanges {
		if r.Contains(a.Unmap()) {
			return false
		}
	}
	return true
}
