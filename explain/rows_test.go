package explain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/scale"
)

// TestJudge: which rows of a Service a finding is about.
func TestJudge(t *testing.T) {
	rows := func() []report.ServicePort {
		row := func(name, port string, number int, protocol, family string) report.ServicePort {
			return report.ServicePort{Namespace: "a", Name: name, PortName: port, Port: number, Protocol: protocol, Family: family, State: report.ServicePortOK, Findings: []string{}}
		}
		return []report.ServicePort{
			row("dns", "dns", 53, "TCP", "IPv4"), row("dns", "dns", 53, "UDP", "IPv4"), row("dns", "metrics", 9153, "TCP", "IPv4"),
			row("web", "", 80, "TCP", "IPv4"), row("web", "", 80, "TCP", "IPv6"),
			row("mixed", "", 80, "TCP", "IPv4"), row("mixed", "", 80, "UDP", "IPv4"), row("mixed", "dns", 53, "UDP", "IPv4"),
		}
	}
	tests := []struct {
		object report.Object
		want   []int
	}{
		{report.Object{Name: "dns"}, []int{0, 1, 2}},
		{report.Object{Name: "dns", Port: "metrics", Protocol: "TCP"}, []int{2}},
		{report.Object{Name: "dns", Port: "metrics"}, []int{2}},
		{report.Object{Name: "dns", Port: "dns"}, []int{0, 1}},
		{report.Object{Name: "dns", Port: "dns", Protocol: "UDP"}, []int{1}},
		{report.Object{Name: "dns", Port: "gone", Protocol: "UDP"}, []int{0, 1, 2}},
		{report.Object{Name: "web", Protocol: "TCP"}, []int{3, 4}},
		{report.Object{Name: "web", Protocol: "TCP", Endpoint: "10.0.0.1:80"}, []int{3}},
		{report.Object{Name: "web", Protocol: "TCP", Endpoint: "[fd00::1]:80"}, []int{4}},
		{report.Object{Name: "web", Endpoint: "fd00::1"}, []int{4}},
		{report.Object{Name: "web", Endpoint: "the one"}, []int{3, 4}},
		{report.Object{Name: "web", Port: "80"}, []int{3, 4}},
		{report.Object{Name: "dns", Port: "dns", Protocol: "UDP", Endpoint: "[fd00::1]:80"}, []int{1}},
		{report.Object{Name: "mixed", Protocol: "UDP"}, []int{6}},
		{report.Object{Name: "other"}, nil},
		{report.Object{Kind: "Pod", Name: "web"}, nil},
	}
	for _, tt := range tests {
		if tt.object.Namespace = "a"; tt.object.Kind == "" {
			tt.object.Kind = "Service"
		}
		of := rows()
		judge(of, []report.Finding{
			{ID: "first", Severity: "error", Object: tt.object}, {ID: "second", Severity: "info", Object: tt.object}, {ID: "first", Severity: "info", Object: tt.object},
		})
		var got []int
		for i := range of {
			if len(of[i].Findings) == 0 {
				continue
			}
			got = append(got, i)
			if s := fmt.Sprint(of[i].State, of[i].Severity, of[i].Findings); s != "differserror[first second]" {
				t.Errorf("%+v: row %d is %s", tt.object, i, s)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v is about the rows %v, want %v", tt.object, got, tt.want)
		}
	}
}

// TestJudgeRemark: a remark makes no difference.
func TestJudgeRemark(t *testing.T) {
	rows := []report.ServicePort{{Namespace: "a", Name: "web", State: report.ServicePortUnknown, Findings: []string{}}}
	judge(rows, []report.Finding{{ID: "remark", Severity: "info", Object: report.Object{Kind: "Service", Namespace: "a", Name: "web"}}})
	if rows[0].State != report.ServicePortUnknown || rows[0].Severity != "info" || len(rows[0].Findings) != 1 {
		t.Errorf("%+v", rows[0])
	}
}

// TestNamedBounded: where very many Services are named by rules alone their rows have no numbers, and are there.
func TestNamedBounded(t *testing.T) {
	for _, services := range []int{maxNamedWalked, maxNamedWalked + 1} {
		r, err := Read(rulesOnly(services), AuditOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rows := r.Services().Services
		if len(rows) != services {
			t.Errorf("%d rows of %d Services", len(rows), services)
		}
		for _, row := range rows {
			if (row.Programmed != nil) != (services <= maxNamedWalked) || row.Programmed != nil && *row.Programmed != 2 || row.Port != 80 || row.PortName != "http" || len(row.Counted) != 1 || len(row.Counted[0].Numbers) != 2 {
				t.Errorf("of %d: %+v", services, row)
				break
			}
		}
	}
}

func rulesOnly(services int) *snapshot.Snapshot {
	return &snapshot.Snapshot{Node: "node-1", Evidence: []snapshot.Evidence{
		{Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", File: "save.txt", Status: snapshot.OK, Data: scale.IPTablesSave(services, 2)},
	}}
}
