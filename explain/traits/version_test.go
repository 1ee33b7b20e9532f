package traits

import (
	"slices"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Version
		show string
	}{
		{"v1.36.3", Version{1, 36, 3}, "1.36.3"},
		{"1.19", Version{1, 19, -1}, "1.19"},
		{"v1.31.4+k3s1", Version{1, 31, 4}, "1.31.4"},
		{"v1.29.6-eks-036c24b", Version{1, 29, 6}, "1.29.6"},
		{"v1.37.0-beta.0", Version{1, 37, 0}, "1.37.0"},
	} {
		v, ok := ParseVersion(tt.text)
		if !ok || v != tt.want || v.String() != tt.show {
			t.Errorf("ParseVersion(%q) = %v, %v", tt.text, v, ok)
		}
	}
	for _, s := range []string{"", "v", "1", "v1.", "v0.0.0-master+$Format:%H$", "1.2.3.4", "one.two", "v1.-2.3", "1.99999999999", "latest", " 1.2"} {
		if v, ok := ParseVersion(s); ok {
			t.Errorf("ParseVersion(%q) = %v", s, v)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for _, tt := range []struct {
		v    Version
		want bool
	}{
		{Version{}, true}, {Version{1, 24, 0}, true}, {Version{1, 24, -1}, true}, {Version{1, 25, 3}, true}, {Version{2, 0, 0}, true},
		{Version{1, 23, 17}, false}, {Version{1, 2, -1}, false},
	} {
		if got := tt.v.AtLeast(1, 24); got != tt.want {
			t.Errorf("%v.AtLeast(1, 24) = %v", tt.v, got)
		}
	}
	for _, tt := range []struct {
		p    Proxy
		want bool
		text string
	}{
		{Proxy{}, true, ""},
		{Proxy{Version: Version{1, 23, 4}}, false, "1.23.4"},
		{Proxy{Version: Version{1, 19, -1}, Newest: Version{1, 23, -1}, VersionFromRules: true}, false, "1.19 to 1.23"},
		{Proxy{Version: Version{1, 19, -1}, Newest: Version{1, 25, -1}, VersionFromRules: true}, true, "1.19 to 1.25"},
		{Proxy{Version: Version{1, 19, -1}, VersionFromRules: true}, true, "1.19 or newer"},
		{Proxy{Version: floor, Newest: Version{1, 18, -1}, VersionFromRules: true}, false, "1.18 or older"},
		{Proxy{Version: Version{1, 24, -1}, Newest: Version{1, 24, -1}, VersionFromRules: true}, true, "1.24"},
	} {
		if got := tt.p.AtLeast(1, 24); got != tt.want || tt.p.VersionText() != tt.text {
			t.Errorf("%+v: %v %q", tt.p, got, tt.p.VersionText())
		}
	}
}

// Every sign of the tables of rules can be found, and every sign that is looked for is in a table.
func TestTellTables(t *testing.T) {
	tables := map[string][]tell{
		"iptables": iptablesTells, "ipvs": ipvsTells, "userspace": userspaceTells,
		"metrics": metricTells, "configz": configzTells, "healthz": healthzTells,
	}
	used := map[string]bool{}
	for name, table := range tables {
		byName := func(a, b tell) int { return strings.Compare(strings.ToLower(a.sign), strings.ToLower(b.sign)) }
		if !slices.IsSortedFunc(table, byName) {
			t.Errorf("the table of %s is not sorted", name)
		}
		for i, e := range table {
			if e.oldest == 0 && e.newest == 0 || e.newest > 0 && e.newest < e.oldest {
				t.Errorf("%s: %q has no sensible range", name, e.sign)
			}
			if i > 0 && table[i-1].sign == e.sign {
				t.Errorf("%s: %q twice", name, e.sign)
			}
			if name != "iptables" && name != "ipvs" && name != "userspace" {
				continue
			}
			used[e.sign] = true
			if !slices.ContainsFunc(ruleSigns, func(s ruleSign) bool { return s.sign == e.sign }) {
				t.Errorf("%s: nothing looks for %q", name, e.sign)
			}
		}
	}
	for i, s := range ruleSigns {
		if !used[s.sign] {
			t.Errorf("%q is looked for and tells nothing", s.sign)
		}
		if i > 0 && strings.ToLower(ruleSigns[i-1].sign) > strings.ToLower(s.sign) {
			t.Errorf("ruleSigns are not sorted at %q", s.sign)
		}
	}
}

func TestProbabilityDigits(t *testing.T) {
	for text, want := range map[string]int{
		"-m statistic --mode random --probability 0.33332999982 -j X": 5,
		"-m statistic --mode random --probability 0.33333333349 -j X": 10,
		"-m statistic --mode random --probability 0.16667000018 -j X": 5,
		"-m statistic --mode random --probability 0.16666666651 -j X": 10,
		"statistic mode random probability 0.14285714272":             10,
		"-m statistic --mode random --probability 0.50000000000 -j X": 0,
		"-m statistic --mode random --probability 0.20000000019 -j X": 0,
		"-m statistic --mode random --probability 0.10000000009 -j X": 0,
		"-m statistic --mode random --probability 0.00100000016 -j X": 0,
		"-m statistic --mode random --probability 0.37000000000 -j X": 0,
		"-m statistic --mode random --probability 0 -j X":             0,
		"-m statistic --mode random --probability NaN -j X":           0,
		"-m statistic --mode random --probability 1.00000000000 -j X": 0,
		"-A X -j Y": 0,
	} {
		if got := probabilityDigits(text); got != want {
			t.Errorf("probabilityDigits(%q) = %d, want %d", text, got, want)
		}
	}
}
