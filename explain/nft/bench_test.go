package nft

import (
	"fmt"
	"strings"
	"testing"
)

// cluster is a table of kube-proxy 1.36 for a number of Services with five endpoints each, one in ten with a node port,
// as nft prints it in both forms (testdata/listing/kube-proxy-1.36).
func cluster(services int) (text, json string) {
	const endpoints = 5
	name := func(kind string, i int) string {
		return fmt.Sprintf("%s-%08X-namespace-%d/service-%d/tcp/http", kind, uint32(i)*2654435761, i%50, i)
	}
	clusterIP := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&0xff, i&0xff) }
	podIP := func(n int) string { return fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&0xff, n&0xff) }

	var t, j, rules strings.Builder
	const in = `"family": "ip", "table": "kube-proxy"`
	t.WriteString("table ip kube-proxy {\n\tcomment \"rules for kube-proxy\"\n")
	j.WriteString(`{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}, {"table": {"family": "ip", "name": "kube-proxy", "handle": 1}}`)
	elements := func(n int, f func(i int) (text, json string)) {
		t.WriteString("\t\telements = { ")
		j.WriteString(`, "elem": [`)
		for i := range n {
			text, json := f(i)
			if i > 0 {
				t.WriteString(",\n\t\t\t     ")
				j.WriteString(", ")
			}
			t.WriteString(text)
			j.WriteString(json)
		}
		t.WriteString(" }\n\t}\n\n")
		j.WriteString("]}}")
	}
	t.WriteString("\tset hairpin-connections {\n\t\ttype ipv4_addr . ipv4_addr . inet_proto . inet_service\n")
	j.WriteString(`, {"set": {` + in + `, "name": "hairpin-connections", "type": ["ipv4_addr", "ipv4_addr", "inet_proto", "inet_service"], "handle": 2`)
	elements(services*endpoints, func(i int) (string, string) {
		return fmt.Sprintf("%s . %[1]s . tcp . 8080", podIP(i)), fmt.Sprintf(`{"concat": [%q, %[1]q, "tcp", 8080]}`, podIP(i))
	})
	t.WriteString("\tset cluster-ips {\n\t\ttype ipv4_addr\n")
	j.WriteString(`, {"set": {` + in + `, "name": "cluster-ips", "type": "ipv4_addr", "handle": 3`)
	elements(services, func(i int) (string, string) { return clusterIP(i), fmt.Sprintf("%q", clusterIP(i)) })
	t.WriteString("\tmap service-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n")
	j.WriteString(`, {"map": {` + in + `, "name": "service-ips", "type": ["ipv4_addr", "inet_proto", "inet_service"], "handle": 4, "map": "verdict"`)
	elements(services, func(i int) (string, string) {
		return fmt.Sprintf("%s . tcp . 80 : goto %s", clusterIP(i), name("service", i)),
			fmt.Sprintf(`[{"concat": [%q, "tcp", 80]}, {"goto": {"target": %q}}]`, clusterIP(i), name("service", i))
	})
	t.WriteString("\tmap service-nodeports {\n\t\ttype inet_proto . inet_service : verdict\n")
	j.WriteString(`, {"map": {` + in + `, "name": "service-nodeports", "type": ["inet_proto", "inet_service"], "handle": 5, "map": "verdict"`)
	elements(services/10, func(i int) (string, string) {
		return fmt.Sprintf("tcp . %d : goto %s", 30000+i, name("external", 10*i)),
			fmt.Sprintf(`[{"concat": ["tcp", %d]}, {"goto": {"target": %q}}]`, 30000+i, name("external", 10*i))
	})
	handle := 10
	chain := func(chain, text, json string) {
		t.WriteString("\tchain " + chain + " {\n\t\t" + text + "\n\t}\n\n")
		fmt.Fprintf(&j, `, {"chain": {%s, "name": %q, "handle": %d}}`, in, chain, handle)
		fmt.Fprintf(&rules, `, {"rule": {%s, "chain": %q, "handle": %d, "expr": [%s]}}`, in, chain, handle+1, json)
		handle += 2
	}
	for i := range services {
		var text, json []string
		for e := range endpoints {
			text = append(text, fmt.Sprintf("%d : %s . 8080", e, podIP(i*endpoints+e)))
			json = append(json, fmt.Sprintf(`[%d, {"concat": [%q, 8080]}]`, e, podIP(i*endpoints+e)))
		}
		chain(name("service", i),
			"meta l4proto tcp dnat ip to numgen random mod 5 map { "+strings.Join(text, ", ")+" }",
			`{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}, {"dnat": {"family": "ip", "addr": `+
				`{"map": {"key": {"numgen": {"mode": "random", "mod": 5, "offset": 0}}, "data": {"set": [`+strings.Join(json, ", ")+`]}}}}}`)
		if i%10 == 0 {
			chain(name("external", i), `meta mark set meta mark | 0x00004000 comment "masquerade"`,
				`{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 16384]}}}`)
		}
	}
	t.WriteString("}\n")
	j.WriteString(rules.String() + "]}\n")
	return t.String(), j.String()
}

// TestClusterForm holds what the benchmarks read against what they stand for: it is read without a problem, in both
// forms as the same.
func TestClusterForm(t *testing.T) {
	text, json := cluster(30)
	fromText, fromJSON := parseText(t, text, "x"), parseJSON(t, json, "x")
	noProblems(t, fromText)
	noProblems(t, fromJSON)
	fromText.Tables[0].Comment = ""
	for _, r := range fromText.Tables[0].Chains {
		for _, rule := range r.Rules {
			rule.Comment = ""
			rule.Text = fromText.Tables[0].RuleText(rule)
		}
	}
	if diff := sameRulesets(fromText, fromJSON); diff != "" {
		t.Error(diff)
	}
	if n := len(fromText.Tables[0].Chains); n != 33 {
		t.Errorf("%d chains", n)
	}
}

func BenchmarkParseText(b *testing.B) {
	text, _ := cluster(10000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseText(text, "x"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseJSON(b *testing.B) {
	_, json := cluster(10000)
	data := []byte(json)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseJSON(data, "x"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint(b *testing.B) {
	text, _ := cluster(10000)
	r := parseText(b, text, "x")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		_ = r.String()
	}
}
