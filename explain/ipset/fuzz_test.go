package ipset

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/paste"
)

// FuzzParse: whatever a capture holds, it is read, what was read can be asked, and nothing is undecided without a
// reason.
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
	f.Add("create A hash:net,port,net\nadd A 0.0.0.0-255.255.255.255,tcp:0-65535,1.1.1.1-9.9.9.9\n")
	f.Add("create A list:set\nadd A A\nName: A\nMembers:\nName: B\n")
	f.Fuzz(func(t *testing.T, text string) {
		sets, problems, err := Parse(text, "f")
		if (err == nil) != (len(sets) > 0) {
			t.Fatalf("%d sets and error %v", len(sets), err)
		}
		for _, p := range problems {
			if !utf8.ValidString(p.Text) || len(p.Text) > 2*paste.Longest || p.Why == "" {
				t.Errorf("problem %+v", p)
			}
		}
		byName := make(map[string]*Set)
		for _, s := range sets {
			byName[s.Name] = s
		}
		four := packet(protoTCP, "10.0.0.1", 0, "10.0.0.2", 80)
		six := packet(protoUDP, "fd00::1", 53, "fd00::2", 53)
		for _, s := range sets {
			for _, p := range []*Packet{four, six} {
				for _, d := range []string{"src", "dst,dst", "dst,dst,src"} {
					a := s.Test(func(n string) *Set { return byName[n] }, dirs(d), p)
					if a.Is == host.Unknown && a.Because == "" {
						t.Errorf("set %q: undecided without a reason", s.Name)
					}
					if a.Entry != nil && a.Set == nil {
						t.Errorf("set %q: an entry of no set", s.Name)
					}
				}
			}
			for i := range s.Entries {
				if s.Entries[i].Line < 1 {
					t.Errorf("an entry of no line: %+v", s.Entries[i])
				}
				if i < 100 {
					s.Find(s.Entries[i].Text)
				}
			}
		}
	})
}
