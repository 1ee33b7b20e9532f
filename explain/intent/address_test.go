package intent

import "testing"

func TestParseAddr(t *testing.T) {
	tests := map[string]string{
		"10.0.0.1": "10.0.0.1", "010.000.00.001": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "FD00::1": "fd00::1",
		"": "", "None": "", "10.0.0": "", "10.0.0.256": "", "fe80::1%eth0": "", "1..2.3": "", "10.0.0.1/32": "", " 10.0.0.1": "",
	}
	for in, want := range tests {
		got, ok := parseAddr(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: got %s, %t, want %q", in, got, ok, want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	tests := map[string]string{
		"10.0.0.1/8": "10.0.0.0/8", " 010.0.0.0/8\t": "10.0.0.0/8", "::/0": "::/0", "fd00::1/64": "fd00::/64",
		"": "", "10.0.0.0": "", "10.0.0.0/": "", "10.0.0.0/33": "", "x/8": "", "10.0.0.0/08": "", "10.0.0.0/-1": "",
	}
	for in, want := range tests {
		got, ok := parsePrefix(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: got %s, %t, want %q", in, got, ok, want)
		}
	}
}

// FuzzParseAddr holds that what is read is a plain address which reads as itself.
func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"010.0.0.1", "::ffff:1.2.3.4", "fe80::1%eth0", "None", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parseAddr(s)
		if !ok {
			return
		}
		if again, ok := parseAddr(a.String()); !ok || again != a || a.Is4In6() || a.Zone() != "" {
			t.Errorf("%q: %s reads as %s", s, a, again)
		}
		if _, ok := parsePrefix(a.String() + "/0"); !ok {
			t.Errorf("%s/0 is no range", a)
		}
	})
}
