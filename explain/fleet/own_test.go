package fleet

import (
	"testing"

	"github.com/svcnet/svcnet/explain/report"
)

// TestOwn: what belongs to a node is replaced where it stands by itself, and nowhere else.
func TestOwn(t *testing.T) {
	o := ownOf("n1", report.Own{Addresses: []string{"172.30.0.1", "10.244.1.1", "fd00:30::1"}, PodCIDRs: []string{"10.244.1.0/24"}})
	for text, want := range map[string]string{
		"to 172.30.0.1:30080/TCP":     "to <address of the node>:30080/TCP",
		"to 172.30.0.11:30080":        "to 172.30.0.11:30080",
		"from 1172.30.0.1":            "from 1172.30.0.1",
		"at 172.30.0.1.":              "at <address of the node>.",
		"[fd00:30::1]:80":             "[<IPv6 address of the node>]:80",
		"fd00:30::1:2":                "fd00:30::1:2",
		"! -s 10.244.1.0/24 on n1":    "! -s <pods of the node> on <node>",
		"n10, pn1, n1-a and n1.local": "n10, pn1, n1-a and n1.local",
		"n1: 10.244.1.1, n1":          "<node>: <address of the node>, <node>",
	} {
		if got := o.in(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got, want := numberless("3 of 1,024 (98.5%) in 2 h"), "# of # (#%) in # h"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReports: what a node counts makes it no other kind, what it does makes it one, and the order makes no difference.
func TestReports(t *testing.T) {
	finding := func(severity, id, object, message string) report.Finding {
		return report.Finding{Severity: severity, ID: id, Object: report.Object{Kind: object}, Message: message}
	}
	docs := []*report.Report{
		{Node: "c", Findings: []report.Finding{finding("warning", "conntrack-table-full", "Node", "92% of 1000 entries")}},
		{Node: "a", Findings: []report.Finding{finding("warning", "conntrack-table-full", "Node", "95% of 2000 entries")}},
		{Node: "b", Findings: []report.Finding{finding("error", "kube-jump-missing", "Node", "no jump")}},
		{Node: "d", Findings: []report.Finding{finding("warning", "conntrack-table-full", "Node", "91% of 10 entries"), finding("info", "x", "Node", "remark")}},
	}
	for range len(docs) {
		docs = append(docs[1:], docs[0])
		var l Reports
		for _, d := range docs {
			l.Add(d)
		}
		out := l.List()
		if len(out.Kinds) != 2 || out.Kinds[0].Item != "b" || !out.Kinds[0].Odd || out.Kinds[1].Item != "a" || len(out.Kinds[1].Nodes) != 3 {
			t.Fatalf("kinds %+v", out.Kinds)
		}
		for i, want := range []string{"", "", "a", "a"} {
			if out.Items[i].Like != want {
				t.Errorf("%s is like %q, want %q", out.Items[i].Node, out.Items[i].Like, want)
			}
		}
		for _, f := range out.Findings {
			if want := map[string]int{"conntrack-table-full": 3, "kube-jump-missing": 1, "x": 1}[f.Finding.ID]; len(f.Nodes) != want || f.Everywhere {
				t.Errorf("%s on %v, want %d nodes", f.Finding.ID, f.Nodes, want)
			}
		}
		if len(out.Findings) != 3 || out.Findings[0].Finding.ID != "kube-jump-missing" || out.Findings[1].Finding.Message != "95% of 2000 entries" {
			t.Errorf("findings %+v", out.Findings)
		}
	}
}
