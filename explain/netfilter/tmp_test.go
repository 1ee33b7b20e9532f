package netfilter
import ("testing";"os";"path/filepath";"strings";"fmt")
func TestTmp(t *testing.T) {
	fs,_ := filepath.Glob("testdata/*/*")
	for _, f := range fs {
		b,_ := os.ReadFile(f)
		var rs []*Ruleset; var err error
		if strings.Contains(f,"-L") { rs, err = ParseList(string(b), f, Hint{}) } else { rs, err = ParseSave(string(b), f, Hint{}) }
		if err != nil { fmt.Println(f, err); continue }
		for _, r := range rs {
			s := ""
			for _, tb := range r.Tables { n:=0; for _, c := range tb.Chains { n+= len(c.Rules) }; s += fmt.Sprintf(" %s(%d,%d,%v)", tb.Name, len(tb.Chains), n, tb.Complete) }
			fmt.Println(f, r.Family, r.Backend, r.Version, s)
			for _, p := range r.Problems { fmt.Printf("   %d %s: %q\n", p.Line, p.Why, p.Text) }
			for _, tb := range r.Tables { for _, c := range tb.Chains { for _, ru := range c.Rules { for _, m := range ru.Matches { switch m := m.(type) { case *Other, *UnreadableMatch: fmt.Printf("   %+v\n", m)}}}}}
		}
	}
}
