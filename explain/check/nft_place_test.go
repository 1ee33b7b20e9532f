package check

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// localTable is a table with one Service whose node port is for the node's own endpoints, as kube-proxy 1.36 writes it.
const localTable = `table ip kube-proxy {
	map service-nodeports {
		type inet_proto . inet_service : verdict
		elements = { tcp . 30706 : goto external-NSPANPG4-store/port-local/tcp/web }
	}

	chain external-NSPANPG4-store/port-local/tcp/web {
		ip saddr 10.244.0.0/16 goto service-NSPANPG4-store/port-local/tcp/web comment "short-circuit pod traffic"
		goto local-NSPANPG4-store/port-local/tcp/web
	}

	chain service-NSPANPG4-store/port-local/tcp/web {
		meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.244.1.20 . 8080 }
	}

	chain local-NSPANPG4-store/port-local/tcp/web {
		meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.244.1.20 . 8080 }
	}
}
`

func TestNFTUnprogrammed(t *testing.T) {
	at := netip.MustParseAddr("172.30.0.11")
	sp := &intent.ServicePort{
		Namespace: "store", Name: "port-local", PortName: "web", Protocol: "TCP", Family: 4, NodePort: 30706, ExternalLocal: true,
		Frontends: []intent.Frontend{{Kind: intent.NodePort, Addr: at, Port: 30706, OnNode: true}},
		Endpoints: []intent.Endpoint{{Addr: netip.MustParseAddr("10.244.1.20"), Port: 8080, Local: true}}, Usable: []int{0}, Local: []int{0},
	}
	path := &report.Path{Frontend: report.Frontend{Kind: string(intent.NodePort), Address: at.String(), Port: 30706, Protocol: "TCP"}}
	const local = "\tchain local-NSPANPG4-store/port-local/tcp/web {\n"
	const translates = "\t\tmeta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.244.1.20 . 8080 }\n"
	way := []string{
		"table ip kube-proxy chain external-NSPANPG4-store/port-local/tcp/web (2 rules)",
		"table ip kube-proxy chain service-NSPANPG4-store/port-local/tcp/web (1 rule)",
	}
	for _, tt := range []struct {
		name, text string
		says       string
		want       []string
	}{
		{"an empty chain", strings.Replace(localTable, local+translates, local, 1), "the chain local-NSPANPG4-store/port-local/tcp/web is empty",
			append(way[:2:2], "table ip kube-proxy chain local-NSPANPG4-store/port-local/tcp/web (0 rules)")},
		{"another protocol", strings.Replace(localTable, local+"\t\tmeta l4proto tcp", local+"\t\tmeta l4proto udp", 1),
			"chain local-NSPANPG4-store/port-local/tcp/web translates nothing",
			append(way[:2:2], "table ip kube-proxy chain local-NSPANPG4-store/port-local/tcp/web (1 rule)")},
		{"no entry", strings.Replace(localTable, "tcp . 30706", "tcp . 30707", 1), "message", nil},
		{"no table", "table ip other {\n}\n", "message (there is no table ip kube-proxy)", []string{"no table ip kube-proxy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &Port{ServicePort: sp, On: nftNode(t, tt.text, sp)}
			message, evidence := p.nftUnprogrammed(path, "message")
			if !strings.HasSuffix(message, tt.says) {
				t.Errorf("it says %q, want %q", message, tt.says)
			}
			var got []string
			for _, e := range evidence {
				got = append(got, e.Text)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
