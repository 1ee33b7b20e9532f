package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	tests := []struct {
		name, allow, events, want string
		code                      int
	}{
		{
			name: "tests that pass",
			events: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"pass","Package":"p","Elapsed":0.2}`,
			want: "ok   p (0.2s)\n1 passed, 0 failed, 0 skipped\n",
		},
		{
			name: "a skip with a reason of two lines",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: needs root:\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"        run with sudo\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":0.2}`,
			want: "skip p TestA: needs root: run with sudo\nok   p (0.2s)\n0 passed, 0 failed, 1 skipped\n",
		},
		{
			name:  "a skip that is not allowed",
			allow: "p | TestB | IP_VS | parser tests\n",
			events: `{"Action":"output","Package":"m/p","Test":"TestA","Output":"    a_test.go:7: kernel without IP_VS\n"}
{"Action":"skip","Package":"m/p","Test":"TestA"}`,
			want: "FAIL m/p TestA was skipped, and list does not allow it: kernel without IP_VS\n0 passed, 1 failed, 0 skipped\n",
			code: 1,
		},
		{
			name:  "a skip that is allowed for its reason only",
			allow: "p | TestB | IP_VS | parser tests\n",
			events: `{"Action":"output","Package":"m/p","Test":"TestB/x","Output":"    a_test.go:7: kernel without IP_VS\n"}
{"Action":"skip","Package":"m/p","Test":"TestB/x"}
{"Action":"output","Package":"m/p","Test":"TestB/y","Output":"    a_test.go:7: not root\n"}
{"Action":"skip","Package":"m/p","Test":"TestB/y"}`,
			want: "skip m/p TestB/x: kernel without IP_VS\nFAIL m/p TestB/y was skipped, and list does not allow it: not root\n0 passed, 1 failed, 1 skipped\n",
			code: 1,
		},
		{
			name: "a test that fails",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p","Elapsed":1}`,
			want: "FAIL p TestA (1.0s)\n    a_test.go:7: got 1, want 2\nFAIL p (1.0s)\nFAIL\n0 passed, 1 failed, 0 skipped\n",
			code: 1,
		},
		{
			name: "a package that does not build",
			events: `{"Action":"build-output","ImportPath":"p [p.test]","Output":"./a.go:1:1: nonsense\n"}
{"Action":"build-fail","ImportPath":"p [p.test]"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			want: "FAIL p does not build\n./a.go:1:1: nonsense\n0 passed, 1 failed, 0 skipped\n",
			code: 1,
		},
		{
			name: "a panic",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p","Elapsed":0.1}`,
			want: "FAIL p TestA did not end\npanic: boom\nFAIL p (0.1s)\nFAIL\tp\t0.1s\n0 passed, 1 failed, 0 skipped\n",
			code: 1,
		},
		{
			name: "a package that ends before any test",
			events: `{"Action":"output","Package":"p","Output":"no such file\n"}
{"Action":"fail","Package":"p","Elapsed":0.1}`,
			want: "FAIL p (0.1s)\nno such file\n0 passed, 1 failed, 0 skipped\n",
			code: 1,
		},
		{
			name:   "a package without tests, and a line that is no event",
			events: "warning: something\n" + `{"Action":"skip","Package":"p"}`,
			want:   "warning: something\n0 passed, 0 failed, 0 skipped\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			ta := tally{out: &out}
			if tt.allow != "" {
				var err error
				if ta.allowed, err = parseAllowed("list", tt.allow); err != nil {
					t.Fatal(err)
				}
			}
			if err := ta.read(strings.NewReader(tt.events)); err != nil {
				t.Fatal(err)
			}
			code := ta.close()
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got)\n%s", diff)
			}
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
		})
	}
}

func TestParseAllowed(t *testing.T) {
	for _, text := range []string{"p | T | x", "p | T | x | ", " | T | x | y", "p T x y", "a|b|c|d|e"} {
		if _, err := parseAllowed("list", text); err == nil || !strings.HasPrefix(err.Error(), "list:1: ") {
			t.Errorf("parseAllowed(%q): %v, want an error that names the line", text, err)
		}
	}
	a, err := parseAllowed("list", "# why\n\np | T | x | y\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]allowedLine{{"p", "T", "x", "y"}}, a.lines, cmp.AllowUnexported(allowedLine{})); diff != "" {
		t.Error(diff)
	}
}
