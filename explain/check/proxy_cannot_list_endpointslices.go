package check

import (
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// proxyCannotListEndpointSlices: the API server does not let kube-proxy read what it programs. It then programs nothing,
// or nothing new.
var proxyCannotListEndpointSlices = Check{
	ID: "proxy-cannot-list-endpointslices", Severity: Critical,
	Title:    "proxies that may not read Services or EndpointSlices",
	Explains: unsynced,
	Node: func(n *Node) []report.Finding {
		if f, ok := n.deniedByLog(); ok {
			return []report.Finding{f}
		}
		if f, ok := n.deniedByRoles(); ok {
			return []report.Finding{f}
		}
		return nil
	},
}

// programmed are the types without which kube-proxy programs nothing.
var programmed = []string{"*v1.EndpointSlice", "*v1beta1.EndpointSlice", "*v1.Endpoints", "*v1.Service"}

const grantProxy = "bind ClusterRole system:node-proxier to kube-proxy and let it list and watch endpointslices.discovery.k8s.io " +
	"(an API server mends its own roles at start: kubectl get clusterrole system:node-proxier -o yaml; a role of the distribution's own has to be edited)"

// askedAgain is the longest time that kube-proxy takes to ask again for what it was denied: client-go waits for up to
// 30 seconds, and up to as long again by chance (reflector.go). An API server that starts denies everything until it has
// made its roles; kube-proxy does not say when it is let in afterwards.
const askedAgain = 2 * time.Minute

func (n *Node) deniedByLog() (report.Finding, bool) {
	t := n.trouble(
		func(e *traits.Event) bool {
			return e.Kind == traits.WatchDenied && slices.Contains(programmed, e.Subject)
		},
		func(failed, later *traits.Event) bool {
			return later.Kind == traits.SyncDone || later.Kind == traits.Listed && later.Subject == failed.Subject
		})
	if !t.within(n, askedAgain) && (len(t.events) == 0 || n.behind() == nil) {
		return report.Finding{}, false
	}
	last := t.end()
	f := report.Finding{
		Subject:  last.Subject,
		Message:  fmt.Sprintf("the API server does not let kube-proxy list or watch %s (%s): it does not learn of changes, and after a restart it programs nothing", last.Subject, t.when()),
		Want:     "permission to list and watch " + last.Subject,
		Got:      "forbidden",
		Evidence: t.evidence(),
		Causes: []string{
			"an upgrade of kube-proxy to a version that reads EndpointSlices (1.19 and newer) with the roles of an older one",
			"a binding of kube-proxy's user or service account that was deleted",
		},
		Remedy: grantProxy,
	}
	if role, ok := n.rolesOfProxy(); ok && len(role) > 0 {
		f.Evidence = append(f.Evidence, ObjectEvidence(role[0].Evidence, "ClusterRole "+role[0].Name))
	}
	return f, true
}

// deniedByRoles: roles that are bound to kube-proxy are known, and none of them allows it.
func (n *Node) deniedByRoles() (report.Finding, bool) {
	roles, ok := n.rolesOfProxy()
	if !ok || !n.Proxy.AtLeast(1, 19) {
		return report.Finding{}, false
	}
	if slices.ContainsFunc(roles, func(r objects.ClusterRole) bool {
		return allows(r.Rules, "discovery.k8s.io", "endpointslices", "list") && allows(r.Rules, "discovery.k8s.io", "endpointslices", "watch")
	}) {
		return report.Finding{}, false
	}
	f := report.Finding{
		Subject: "endpointslices.discovery.k8s.io",
		Message: fmt.Sprintf("ClusterRole %s, which is bound to kube-proxy, does not let it list and watch EndpointSlices: it programs no endpoints", roles[0].Name),
		Want:    "verbs list and watch on endpointslices.discovery.k8s.io",
		Got:     "no such rule",
		Causes:  []string{"an upgrade of kube-proxy to a version that reads EndpointSlices (1.19 and newer) with the roles of an older one"},
		Remedy:  grantProxy,
	}
	for _, r := range roles {
		f.Evidence = append(f.Evidence, ObjectEvidence(r.Evidence, "ClusterRole "+r.Name))
	}
	return f, true
}

// rolesOfProxy are the roles that are bound to kube-proxy. It is false where no binding of its is known, or not all of
// the roles are.
func (n *Node) rolesOfProxy() (roles []objects.ClusterRole, ok bool) {
	for _, b := range n.Objects.RoleBindings {
		if !slices.ContainsFunc(b.Subjects, isProxy) {
			continue
		}
		r, known := n.Objects.ClusterRole(b.RoleRef.Name)
		if !known || r.AggregationRule != nil {
			return nil, false
		}
		roles = append(roles, r)
	}
	return roles, len(roles) > 0
}

// isProxy tells the user and the service account under which kube-proxy runs.
func isProxy(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.UserKind && s.Name == "system:kube-proxy" ||
		s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "kube-system" && s.Name == "kube-proxy"
}

// allows tells whether a rule grants a verb on all objects of a resource.
func allows(rules []rbacv1.PolicyRule, group, resource, verb string) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return has(r.APIGroups, group) && has(r.Resources, resource) && has(r.Verbs, verb) && len(r.ResourceNames) == 0
	})
}
