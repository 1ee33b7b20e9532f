package netfilter_test
import ("testing";"syscall";"time";"os";"fmt"
"github.com/svcnet/svcnet/explain/netfilter"
"github.com/svcnet/svcnet/test/scale")
func cpu() time.Duration { var r syscall.Rusage; syscall.Getrusage(0,&r); return time.Duration(r.Utime.Nano()+r.Stime.Nano()) }
func TestCost(t *testing.T) {
	f := os.Getenv("SAVE"); if f == "" { t.Skip() }
	if _, err := os.Stat(f); err != nil { os.WriteFile(f, scale.IPTablesSave(10000,5), 0644); return }
	b, _ := os.ReadFile(f)
	s := string(b)
	c := cpu()
	rs, _ := netfilter.ParseSave(s, "x", netfilter.Hint{})
	var ru syscall.Rusage; syscall.Getrusage(0,&ru); fmt.Println("u",ru.Utime,"s",ru.Stime,"minflt",ru.Minflt); fmt.Println("cpu", cpu()-c, len(rs), len(rs[0].Problems))
}
