// Command budgets measures the program against its budgets: parsing and tracing beside the tools that everybody has,
// in one run and interleaved, because a machine is never quiet. It prints ratios of CPU time (user and system, this
// process and the tools it starts), each the median of the rounds.
//
// Unit S, the same rules printed by the kernel's own tool, takes root and iptables: without them it is left out, and said
// so.
//
//	go run ./hack/budgets [-services 10000] [-endpoints 5] [-rounds 5]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/test/scale"
)

func main() {
	services := flag.Int("services", 10000, "number of Services")
	endpoints := flag.Int("endpoints", 5, "endpoints of each")
	rounds := flag.Int("rounds", 5, "rounds of which the median counts")
	mode := flag.String("mode", "iptables", "with -audit: the mode of kube-proxy, iptables, nftables or ipvs")
	alone := flag.Int("audit", 0, "only audit a cluster of that many Services, and print the CPU times of audit and decoding")
	parseAlone := flag.Int("parse", 0, "only parse the rules of that many Services, and print the CPU time")
	flag.Parse()
	if *parseAlone > 0 {
		text := string(scale.IPTablesSave(*parseAlone, *endpoints))
		debug.FreeOSMemory()
		var err error
		took := cpu(func() { err = parsed(text) })
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(int64(took))
		return
	}
	if *alone > 0 {
		if err := auditAlone(*mode, *alone, *endpoints); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(*services, *endpoints, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figures are the CPU times of one thing in all rounds.
type figures []time.Duration

func (f figures) median() time.Duration {
	s := slices.Clone(f)
	slices.Sort(s)
	return s[len(s)/2]
}

func run(services, endpoints, rounds int) error {
	dir, err := os.MkdirTemp("", "svcnet-budgets")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	small := scale.IPTablesSave(services, endpoints)
	smallText := string(small)
	file := filepath.Join(dir, "iptables-save.txt")
	if err := os.WriteFile(file, small, 0o600); err != nil {
		return err
	}
	native, err := restore(scale.AsWritten(small))
	if err != nil {
		fmt.Fprintf(os.Stderr, "unit S is not measured: %v\n", err)
	} else {
		defer native.remove()
	}
	namespace, name := scale.Service(services / 2)
	options := explain.TraceOptions{Namespace: namespace, Service: name}

	var unit, save, parse, trace, cold, coldBig, audit, decode, auditBig, decodeBig, tables, tablesDecode, servers, serversDecode figures
	for range rounds {
		d, err := awk(file)
		if err != nil {
			return err
		}
		unit = append(unit, d)
		if native != nil {
			if d, err = native.save(); err != nil {
				return err
			}
			save = append(save, d)
		}
		parse = append(parse, cpu(func() { err = parsed(smallText) }))
		if err != nil {
			return err
		}
		trace = append(trace, cpu(func() { err = traced(small, options) }))
		if err != nil {
			return err
		}
		for _, a := range []struct {
			mode          string
			services      int
			audit, decode *figures
		}{
			{"iptables", services, &audit, &decode}, {"iptables", 5 * services, &auditBig, &decodeBig},
			{"nftables", services, &tables, &tablesDecode}, {"ipvs", services, &servers, &serversDecode},
		} {
			whole, objects, err := auditInChild(a.mode, a.services, endpoints)
			if err != nil {
				return err
			}
			*a.audit, *a.decode = append(*a.audit, whole), append(*a.decode, objects)
		}
		// Memory that the process has not had before costs page faults: both sizes start without any, as a
		// command does that has just been started.
		for _, p := range []struct {
			services int
			times    *figures
		}{{services, &cold}, {5 * services, &coldBig}} {
			took, err := parseInChild(p.services, endpoints)
			if err != nil {
				return err
			}
			*p.times = append(*p.times, took)
		}
	}
	heap := retained(small)
	a := unit.median().Seconds()
	ratio := func(f figures) float64 { return f.median().Seconds() / a }
	fmt.Printf("%d Services x %d endpoints: %d bytes of iptables-save, GOMAXPROCS %d\n", services, endpoints, len(small), runtime.GOMAXPROCS(0))
	fmt.Printf("%-44s %8.3f s\n", "A: mawk '{n+=NF}END{print n}'", a)
	if native != nil {
		fmt.Printf("%-44s %8.3f s  %5.2f A\n", "S: iptables-nft-save -c", save.median().Seconds(), ratio(save))
	}
	fmt.Printf("%-44s %8.3f s  %5.2f A   budget 2 A\n", "parse", parse.median().Seconds(), ratio(parse))
	fmt.Printf("%-44s %8.3f s  %5.2f parse  budget 1.3\n", "trace of one Service, parsing included", trace.median().Seconds(), trace.median().Seconds()/parse.median().Seconds())
	fmt.Printf("%-44s %8.3f s  %5.2f A\n", "parse into memory fresh from the system", cold.median().Seconds(), ratio(cold))
	fmt.Printf("%-44s %8.3f s  %5.2f of a fifth  budget 5.5\n", "the same for five times as many Services", coldBig.median().Seconds(), coldBig.median().Seconds()/cold.median().Seconds())
	rulesOnly, rulesOnlyBig := audit.median()-decode.median(), auditBig.median()-decodeBig.median()
	if native != nil {
		fmt.Printf("%-44s %8.3f s  %5.2f S   budget 0.5 S\n", "audit of all Services, parsing included", rulesOnly.Seconds(), rulesOnly.Seconds()/save.median().Seconds())
	} else {
		fmt.Printf("%-44s %8.3f s  %5.2f A\n", "audit of all Services, parsing included", rulesOnly.Seconds(), rulesOnly.Seconds()/a)
	}
	fmt.Printf("%-44s %8.3f s\n", "decoding of its objects, beside it", decode.median().Seconds())
	fmt.Printf("%-44s %8.3f s  %5.2f of a fifth  budget 5.5\n", "audit of five times as many Services", rulesOnlyBig.Seconds(), rulesOnlyBig.Seconds()/rulesOnly.Seconds())
	rulesOnlyTables := tables.median() - tablesDecode.median()
	fmt.Printf("%-44s %8.3f s  %5.2f A\n", "audit in nftables mode, parsing included", rulesOnlyTables.Seconds(), rulesOnlyTables.Seconds()/a)
	rulesOnlyServers := servers.median() - serversDecode.median()
	fmt.Printf("%-44s %8.3f s  %5.2f A\n", "audit in IPVS mode, parsing included", rulesOnlyServers.Seconds(), rulesOnlyServers.Seconds()/a)
	fmt.Printf("%-44s %8.1f MB %5.2f x text  budget 10\n", "heap that the parsed rules keep", heap/1e6, heap/float64(len(small)))
	return nil
}

// awk is unit A: one pass over the file by a tool that does nothing but split it.
func awk(file string) (time.Duration, error) {
	cmd := exec.Command("mawk", "{n+=NF}END{print n}", file)
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("run mawk (install it: it is the unit of measure): %w", err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// restored is a network namespace that holds rules.
type restored struct{ netns string }

// restore makes a namespace and gives it rules.
func restore(rules []byte) (*restored, error) {
	r := &restored{fmt.Sprintf("svcnet-budgets-%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", r.netns).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w: %s", err, out)
	}
	cmd := exec.Command("ip", "netns", "exec", r.netns, "iptables-nft-restore", "-c")
	cmd.Stdin = bytes.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.remove()
		return nil, fmt.Errorf("restore the rules: %w: %s", err, out)
	}
	return r, nil
}

// save is unit S: the kernel's own tool prints the rules.
func (r *restored) save() (time.Duration, error) {
	cmd := exec.Command("ip", "netns", "exec", r.netns, "iptables-nft-save", "-c")
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("run iptables-nft-save: %w", err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func (r *restored) remove() { _ = exec.Command("ip", "netns", "del", r.netns).Run() }

func parsed(text string) error {
	rs, err := netfilter.ParseSave(text, "iptables-save.txt", netfilter.Hint{})
	if err == nil && len(rs) != 1 {
		err = fmt.Errorf("parse: %d rulesets", len(rs))
	}
	return err
}

func traced(text []byte, o explain.TraceOptions) error {
	s := &snapshot.Snapshot{Evidence: []snapshot.Evidence{{
		Format: snapshot.IPTablesSave, Family: 4, File: "iptables-save.txt", Data: text, Status: snapshot.OK,
	}}}
	t, err := explain.Trace(s, o)
	if err == nil && len(t.Paths) == 0 {
		err = fmt.Errorf("trace: no paths")
	}
	return err
}

// parseInChild parses in a process of its own, which keeps nothing but the text that it parses.
func parseInChild(services, endpoints int) (took time.Duration, err error) {
	if err := inChild([]any{&took}, "-parse", fmt.Sprint(services), "-endpoints", fmt.Sprint(endpoints)); err != nil {
		return 0, fmt.Errorf("parse the rules of %d Services: %w", services, err)
	}
	return took, nil
}

// inChild runs this program with other arguments, and reads what it prints into figures.
func inChild(figures []any, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := exec.Command(self, args...).Output()
	if err == nil {
		_, err = fmt.Sscan(string(out), figures...)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", out, err)
	}
	return nil
}

// auditInChild audits in a process of its own: how much the garbage collector has to do depends on what else the process
// keeps, and an audit's process keeps nothing else.
func auditInChild(mode string, services, endpoints int) (whole, objects time.Duration, err error) {
	if err := inChild([]any{&whole, &objects}, "-mode", mode, "-audit", fmt.Sprint(services), "-endpoints", fmt.Sprint(endpoints)); err != nil {
		return 0, 0, fmt.Errorf("audit %d Services: %w", services, err)
	}
	return whole, objects, nil
}

// auditAlone prints the CPU times of an audit and of decoding its objects, in nanoseconds.
func auditAlone(mode string, services, endpoints int) error {
	rules, lists := rulesOf(mode, services, endpoints), scale.Lists(services, endpoints)
	var err error
	debug.FreeOSMemory()
	objects := cpu(func() { decoded(lists) })
	debug.FreeOSMemory()
	whole := cpu(func() { err = audited(rules, lists) })
	fmt.Println(int64(whole), int64(objects))
	return err
}

// rulesOf is the evidence of a mode's rules.
func rulesOf(mode string, services, endpoints int) []snapshot.Evidence {
	rules := snapshot.Evidence{Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", File: "iptables-save.txt", Status: snapshot.OK}
	if mode == "ipvs" {
		return scale.IPVS(services, endpoints)
	}
	if mode != "nftables" {
		rules.Data = scale.IPTablesSave(services, endpoints)
		return []snapshot.Evidence{rules}
	}
	rules.Status = snapshot.Empty
	tables := snapshot.Evidence{Format: snapshot.NFTText, File: "nft.txt", Data: scale.NFTables(services, endpoints), Status: snapshot.OK}
	return []snapshot.Evidence{rules, tables}
}

// audited audits the whole cluster, and insists that nothing is wrong with it.
func audited(rules []snapshot.Evidence, lists map[string][]byte) error {
	s := &snapshot.Snapshot{Node: "node-1", Evidence: slices.Clone(rules)}
	for _, file := range slices.Sorted(maps.Keys(lists)) {
		s.Evidence = append(s.Evidence, snapshot.Evidence{Format: snapshot.Objects, File: file, Data: lists[file], Status: snapshot.OK})
	}
	r, err := explain.Audit(s, explain.AuditOptions{})
	if err == nil && (r.Summary.Critical+r.Summary.Error+r.Summary.Warning > 0 || r.Services.OK != r.Services.Total) {
		err = fmt.Errorf("audit: %s", r.Summary.Text)
	}
	return err
}

// decoded is what an audit does first, and what depends on the objects alone.
func decoded(lists map[string][]byte) {
	var set objects.Set
	for file, text := range lists {
		objects.Decode(&set, text, file)
	}
	set.Sort()
}

// retained is the size of the heap that a parsed text keeps, the text included.
func retained(text []byte) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	rs, _ := netfilter.ParseSave(string(text), "", netfilter.Hint{})
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(rs)
	runtime.KeepAlive(text) // or it would be gone the second time, and be taken for less
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}
