package ipvs

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/svcnet/svcnet/explain/paste"
)

// FuzzParse: whatever a capture holds, it is read; what was read has a line, prints, and is found again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("-A -f 4294967295 -p\n-a -f 4294967295 -r [::]")
	f.Add("FWM 00000008 dh\n-> [fd00:0244:0000:0000:0000:0000:0000:0005]:1F90 Masq 1 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		var tab Table
		problems, err := Parse(&tab, text, "f")
		for _, p := range problems {
			if !utf8.ValidString(p.Text) || len(p.Text) > 2*paste.Longest || p.Why == "" {
				t.Errorf("problem %+v", p)
			}
		}
		if err != nil && (tab.HasServices || tab.HasConns || len(tab.Services) > 0) {
			t.Errorf("an error, and yet captured: %v", err)
		}
		for i := range tab.Services {
			s := &tab.Services[i]
			if s.Line < 1 || s.Family != 4 && s.Family != 6 {
				t.Errorf("%+v", s)
			}
			var again Table
			if _, err := Parse(&again, s.String(), "f"); err != nil || len(again.Services) != 1 {
				t.Errorf("%q does not read again: %v", s, err)
			}
			if s.FWMark == 0 && tab.Find(s.Family, 0, s.Proto, s.Addr, s.Port, 1024) == nil {
				t.Errorf("%q is not found", s)
			}
			if s.FWMark != 0 && tab.Find(s.Family, s.FWMark, tcp, netip.Addr{}, 1, 1024) == nil {
				t.Errorf("%q is not found", s)
			}
			for j := range s.Dests {
				if s.DestString(&s.Dests[j]); s.Dests[j].Line < 1 || s.Dest(s.Dests[j].AddrPort()) == nil {
					t.Errorf("%+v", s.Dests[j])
				}
			}
		}
		for i := range tab.Conns {
			if c := &tab.Conns[i]; tab.Conn(c.Proto, c.Client, c.Virtual) == nil {
				t.Errorf("%+v is not found", c)
			}
		}
	})
}
