package cmd

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

func TestServiceName(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		bad  bool
	}{
		{nil, "", false},
		{[]string{"web"}, "web", false},
		{[]string{"svc/web"}, "web", false},
		{[]string{"service/web"}, "web", false},
		{[]string{"Services/web"}, "web", false},
		{[]string{"svc", "web"}, "web", false},
		{[]string{"pod/web"}, "", true},
		{[]string{"svc/"}, "", true},
		{[]string{"/web"}, "", true},
		{[]string{"svc/store/web"}, "", true},
		{[]string{""}, "", true},
	} {
		got, err := serviceName(c.args)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %q, %v", c.args, got, err)
		}
	}
}

func TestClients(t *testing.T) {
	for _, c := range []struct {
		from []string
		to   string
		want explain.TraceOptions
		bad  bool
	}{
		{from: []string{"external", "Local-Pod"}, want: explain.TraceOptions{From: []string{"external", "local-pod"}}},
		{from: []string{"pod/a"}, want: explain.TraceOptions{FromPod: "store/a"}},
		{from: []string{"pod/infra/a"}, want: explain.TraceOptions{FromPod: "infra/a"}},
		{from: []string{"10.0.0.1"}, to: "x", want: explain.TraceOptions{To: "x", FromAddr: "10.0.0.1"}},
		{from: []string{"[fd00::1]:80"}, to: "x", want: explain.TraceOptions{To: "x", FromAddr: "[fd00::1]:80"}},
		{from: []string{"fd00::1"}, to: "x", want: explain.TraceOptions{To: "x", FromAddr: "fd00::1"}},
		{from: []string{"pod/a", "external"}, bad: true},
		{from: []string{"pod/"}, bad: true},
		{from: []string{"10.0.0.1", "10.0.0.2"}, to: "x", bad: true},
		{from: []string{"external"}, to: "x", bad: true},
	} {
		f := &traceFlags{namespace: "store", from: c.from}
		got := explain.TraceOptions{To: c.to}
		err := f.clients(&got)
		if (err != nil) != c.bad {
			t.Errorf("%q: %v", c.from, err)
		}
		if err == nil {
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.from, diff)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	found := func(severities ...string) *report.Trace {
		doc := &report.Trace{}
		for _, s := range severities {
			doc.Findings = append(doc.Findings, report.Finding{Severity: s})
		}
		return doc
	}
	missing := found("error")
	missing.Paths = []report.Path{{}}
	for _, c := range []struct {
		name   string
		doc    *report.Trace
		failOn string
		want   int
	}{
		{"nothing", found(), "info", exitOK},
		{"never", found("critical"), "never", exitOK},
		{"below", found("warning", "info"), "error", exitOK},
		{"at", found("error"), "error", exitFindings},
		{"above", found("critical"), "warning", exitFindings},
		{"info", found("info"), "info", exitFindings},
		{"no rules", missing, "never", exitMissing},
		{"findings beat missing sources", missing, "error", exitFindings},
	} {
		got := exitOK
		if err := verdict(c.doc, c.failOn); err != nil {
			var exit *exitError
			if !errors.As(err, &exit) {
				t.Fatalf("%s: %v is no exit code", c.name, err)
			}
			got = exit.code
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
