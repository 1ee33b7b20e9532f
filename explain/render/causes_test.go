package render_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

func TestByCause(t *testing.T) {
	of := func(id, name, cause string) report.Finding {
		return report.Finding{ID: id, Severity: "warning", CausedBy: cause, Object: report.Object{Kind: "Service", Namespace: "shop", Name: name}}
	}
	all := []report.Finding{
		of("no-endpoints", "a", "no-pods"), of("no-endpoints", "b", "no-pods"), of("no-endpoints", "c", "no-pods"),
		of("no-pods", "a", ""), of("no-pods", "b", ""), of("refused", "b", "no-endpoints"), of("alone", "d", "not-there"),
	}
	var got []string
	for _, f := range render.ByCause(all) {
		got = append(got, fmt.Sprintf("%d %s %s", f.Depth, f.ID, f.Object.Name))
	}
	want := []string{
		"0 no-pods a", "1 no-endpoints a", "0 no-pods b", "1 no-endpoints b", "2 refused b",
		"1 no-endpoints c", // no cause of its own Service: behind all that may be one
		"0 alone d",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
