package netfilter

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The tables are searched by halves, so they have to be sorted.
func TestTablesSorted(t *testing.T) {
	var names []string
	for _, e := range extensions {
		names = append(names, e.name)
	}
	sorted(t, "extensions", names)
	names = nil
	for _, a := range actions {
		names = append(names, a.name)
		if len(a.name) > longestTarget {
			t.Errorf("%s is longer than longestTarget", a.name)
		}
	}
	sorted(t, "actions", names)
	names = nil
	for _, p := range protocols {
		names = append(names, p.name)
	}
	sorted(t, "protocols", names)
	names = nil
	for _, s := range services {
		names = append(names, s.name)
	}
	sorted(t, "services", names)
}

func sorted(t *testing.T, table string, names []string) {
	t.Helper()
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			t.Errorf("%s: %s stands before %s", table, names[i-1], names[i])
		}
	}
}

// Each match has a file of its own, apart from those that share one.
func TestMatchFiles(t *testing.T) {
	shared := map[string]string{
		"ah": "spi", "esp": "spi", "dst": "headers", "frag": "headers", "hbh": "headers", "rt": "headers", "srh": "headers",
		"icmp6": "icmp", "udplite": "udp",
	}
	for _, e := range extensions {
		file := e.name
		if s, ok := shared[e.name]; ok {
			file = s
		}
		text, err := os.ReadFile("match_" + file + ".go")
		if err != nil {
			t.Errorf("match %s: %v", e.name, err)
			continue
		}
		if !strings.Contains(string(text), `"`+e.name+`"`) {
			t.Errorf("match_%s.go does not name %s", file, e.name)
		}
	}
	if slices.ContainsFunc(extensions, func(e extension) bool { return e.save == nil || e.list == nil }) {
		t.Error("an extension lacks one of its readers")
	}
}
