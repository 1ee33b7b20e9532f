package objects

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestAhead holds that a long list gives the same on many CPUs as on one: objects, their order, and what is wrong with some.
func TestAhead(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"v1","kind":"List","items":[`)
	for i := range 1500 {
		if i > 0 {
			b.WriteString(",\n")
		}
		switch i % 7 {
		case 0:
			fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%d","namespace":"a"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.%d"]}]}`, i, i%250)
		case 1:
			fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d","namespace":7}}`, i)
		case 2:
			fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d"},"spec":{"clusterIP":"10.1.0.%d"}}`, i, i%250)
		case 3:
			b.WriteString(`17`)
		case 4:
			fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"in%d","namespace":"b"}}]}`, i)
		case 5:
			fmt.Fprintf(&b, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"s%d"}}`, i)
		case 6:
			fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"same","namespace":"c","resourceVersion":"%d"},"spec":{"clusterIP":"10.2.0.%d"}}`, i, i%250)
		}
	}
	b.WriteString(`]}`)
	decode := func() (*Set, []Problem) {
		var s Set
		problems := Decode(&s, b.Bytes(), "list.json")
		return &s, problems
	}
	before := runtime.GOMAXPROCS(1)
	want, wantProblems := decode()
	runtime.GOMAXPROCS(4)
	got, gotProblems := decode()
	runtime.GOMAXPROCS(before)
	if len(want.Services) == 0 || len(want.EndpointSlices) == 0 || len(wantProblems) == 0 {
		t.Fatalf("the list tells nothing: %d Services, %d slices, %d problems", len(want.Services), len(want.EndpointSlices), len(wantProblems))
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Set{})); d != "" {
		t.Errorf("objects differ (-one +many):\n%s", d)
	}
	if d := cmp.Diff(wantProblems, gotProblems); d != "" {
		t.Errorf("problems differ (-one +many):\n%s", d)
	}
}
