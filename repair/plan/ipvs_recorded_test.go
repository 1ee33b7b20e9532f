package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
)

// A kernelText is what was read of a node, as files, and the least that a kernel has to do so that steps can be done to
// it: the commands of the native tools change the text that the same tools would print afterwards. It knows nothing of
// what a mender meant.
type kernelText struct {
	files map[string]string
	// conns are how many connections a real server has, by its address and port.
	conns map[string]int
	// lenient: a command whose work is done already is content, as those of repair/apply are.
	lenient bool
}

const (
	recordedServers = "evidence/ipvsadm-save.txt"
	recordedList    = "evidence/ipvsadm-list.txt"
	recordedSets    = "evidence/ipset-save.txt"
	recordedAddrs   = "evidence/ip-addr.txt"
	recordedRoutes4 = "evidence/ip-route.txt"
	recordedRoutes6 = "evidence/ip6-route.txt"
	recordedRules4  = "evidence/iptables-legacy-save.txt"
	recordedRules6  = "evidence/ip6tables-legacy-save.txt"
)

// recordedNode is a node as a recording has it.
func recordedNode(t *testing.T, folder string) *kernelText {
	t.Helper()
	k := &kernelText{files: map[string]string{}, conns: map[string]int{}}
	dir := os.DirFS("../../test/recorded/testdata/" + folder)
	err := fs.WalkDir(dir, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := fs.ReadFile(dir, path)
		k.files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kernelText) clone() *kernelText {
	return &kernelText{maps.Clone(k.files), maps.Clone(k.conns), k.lenient}
}

// list is the text of ipvsadm -Ln, which says what connections each real server has.
func (k *kernelText) list() string {
	protos := map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP", "-f": "FWM"}
	out := []string{"IP Virtual Server version 1.2.1 (size=4096)", "Prot LocalAddress:Port Scheduler Flags", "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn"}
	for _, l := range k.lines(recordedServers) {
		w := strings.Fields(l)
		switch w[0] {
		case "-A":
			out = append(out, fmt.Sprintf("%s  %s %s", protos[w[1]], w[2], w[4])+strings.Replace(strings.Join(append([]string{""}, w[5:]...), " "), " -p ", " persistent ", 1))
		case "-a":
			method := map[string]string{"-m": "Masq", "-g": "Route", "-i": "Tunnel"}[w[5]]
			out = append(out, fmt.Sprintf("  -> %-28s %-7s %-6s %-10d %-10d", w[4], method, w[7], k.conns[w[4]], 0))
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// read audits the node.
func (k *kernelText) read(t *testing.T) *explain.Reading {
	t.Helper()
	k.files[recordedList] = k.list()
	files := fstest.MapFS{}
	for name, text := range k.files {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := snapshot.LoadFS(files, "node")
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.Read(s, explain.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// do does what a command says.
func (k *kernelText) do(c report.RepairCommand) error {
	switch strings.Join(c.Command, " ") {
	case "ipvsadm -R":
		return k.each(c.Input, k.ipvsadm)
	case "ipset restore -exist":
		return k.each(c.Input, k.ipset)
	case "ip -batch -":
		return k.each(c.Input, k.ip)
	}
	if slices.Contains(c.Command, "--noflush") {
		return k.restore(c)
	}
	return fmt.Errorf("no model of %q", c.Command)
}

func (k *kernelText) each(input string, do func(words []string) error) error {
	for line := range strings.Lines(input) {
		if err := do(strings.Fields(line)); err != nil {
			return fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	return nil
}

// lines are those of a file, without their ends.
func (k *kernelText) lines(file string) []string {
	var out []string
	for s := bufio.NewScanner(strings.NewReader(k.files[file])); s.Scan(); {
		out = append(out, s.Text())
	}
	return out
}

func (k *kernelText) write(file string, lines []string) {
	k.files[file] = strings.Join(lines, "\n") + "\n"
	if len(lines) == 0 {
		k.files[file] = ""
	}
}

// ipvsadm does one command: the text is that of ipvsadm -Sn, where a virtual server is named by two words.
func (k *kernelText) ipvsadm(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("too short")
	}
	named := strings.Join(words[1:3], " ")
	rest := words[3:]
	if len(rest) > 0 && rest[0] == "-6" {
		named, rest = named+" -6", rest[1:]
	}
	all := k.lines(recordedServers)
	is := func(line, verb string) bool { return strings.HasPrefix(line+" ", verb+" "+named+" ") }
	at := slices.IndexFunc(all, func(l string) bool { return is(l, "-A") })
	switch {
	case !k.lenient:
	case at < 0 && (words[0] == "-D" || words[0] == "-d"):
		return nil
	case at >= 0 && words[0] == "-A":
		words = put(words, "-A", "-E")
	}
	if (at < 0) != (words[0] == "-A") {
		return fmt.Errorf("virtual server %s: there %t", named, at >= 0)
	}
	place := -1
	if len(rest) > 1 && rest[0] == "-r" {
		place = slices.IndexFunc(all, func(l string) bool { return strings.HasPrefix(l+" ", "-a "+named+" -r "+rest[1]+" ") })
		switch {
		case !k.lenient:
		case place < 0 && words[0] == "-d":
			return nil
		case place >= 0 && words[0] == "-a":
			words = put(words, "-a", "-e")
		}
		if (place < 0) != (words[0] == "-a") {
			return fmt.Errorf("real server %s: there %t", rest[1], place >= 0)
		}
	}
	line := strings.Join(words[1:], " ")
	switch words[0] {
	case "-A":
		all = append(all, "-A "+line)
	case "-E":
		all[at] = "-A " + line
	case "-D":
		all = slices.DeleteFunc(all, func(l string) bool { return is(l, "-A") || is(l, "-a") })
	case "-a":
		all = slices.Insert(all, at+1, "-a "+line) // the newest first
	case "-e":
		all[place] = "-a " + line
	case "-d":
		all = slices.Delete(all, place, place+1)
	default:
		return fmt.Errorf("no such command")
	}
	k.write(recordedServers, all)
	return nil
}

// ipset does one line of ipset restore -exist.
func (k *kernelText) ipset(words []string) error {
	all := k.lines(recordedSets)
	create := func(name string) int {
		return slices.IndexFunc(all, func(l string) bool { return strings.HasPrefix(l, "create "+name+" ") })
	}
	if len(words) < 2 || words[0] != "create" && create(words[1]) < 0 {
		return fmt.Errorf("no such set")
	}
	line := strings.Join(words, " ")
	entry := "add " + strings.Join(words[1:], " ")
	switch words[0] {
	case "create":
		if at := create(words[1]); at >= 0 {
			if !strings.HasPrefix(all[at], line) {
				return fmt.Errorf("it is there and made otherwise: %s", all[at])
			}
			return nil
		}
		if strings.HasPrefix(words[2], "hash:") {
			line += " bucketsize 12 initval 0x00000001"
		}
		all = append(all, line)
	case "add":
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	case "del":
		all = slices.DeleteFunc(all, func(l string) bool { return l == entry })
	case "flush":
		all = slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, "add "+words[1]+" ") })
	case "destroy":
		for _, rules := range []string{recordedRules4, recordedRules6} {
			if strings.Contains(k.files[rules], "--match-set "+words[1]+" ") {
				return fmt.Errorf("a rule asks it")
			}
		}
		all = slices.DeleteFunc(all, func(l string) bool {
			return strings.HasPrefix(l, "create "+words[1]+" ") || strings.HasPrefix(l, "add "+words[1]+" ")
		})
	case "swap":
		a, b := create(words[1]), create(words[2])
		if b < 0 || features[strings.Fields(all[a])[2]] != features[strings.Fields(all[b])[2]] {
			return fmt.Errorf("not alike")
		}
		other := map[string]string{words[1]: words[2], words[2]: words[1]}
		for i, l := range all {
			w := strings.SplitN(l, " ", 3)
			if to := other[w[1]]; to != "" {
				all[i] = w[0] + " " + to + " " + w[2]
			}
		}
	default:
		return fmt.Errorf("no such command")
	}
	k.write(recordedSets, all)
	return nil
}

// ip does one line of ip -batch.
func (k *kernelText) ip(words []string) error {
	all := k.lines(recordedAddrs)
	device := slices.IndexFunc(all, func(l string) bool { return strings.Contains(l, ": kube-ipvs0: ") })
	switch line := strings.Join(words, " "); {
	case line == "link add kube-ipvs0 type dummy":
		if device >= 0 && k.lenient {
			return nil
		}
		if device >= 0 {
			return fmt.Errorf("it is there")
		}
		all = append(all, "99: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default", "    link/ether 46:e2:2e:ac:6e:2c brd ff:ff:ff:ff:ff:ff", "    dummy")
		k.write(recordedAddrs, all)
		return nil
	case device < 0 && k.lenient && words[1] == "del":
		return nil
	case line == "link del kube-ipvs0":
		if device < 0 {
			return fmt.Errorf("it is not there")
		}
		for _, a := range k.addresses() {
			if err := k.ip([]string{"addr", "del", a, "dev", "kube-ipvs0"}); err != nil {
				return err
			}
		}
		all = k.lines(recordedAddrs)
		k.write(recordedAddrs, slices.Delete(all, device, device+3))
		return nil
	case len(words) != 5 || words[0] != "addr" || words[4] != "kube-ipvs0" || device < 0:
		return fmt.Errorf("cannot find device")
	}
	p, err := netip.ParsePrefix(words[2])
	if err != nil {
		return err
	}
	family, routes := "inet", recordedRoutes4
	route := fmt.Sprintf("local %s dev kube-ipvs0 table local proto kernel scope host src %[1]s", p.Addr())
	if p.Addr().Is6() {
		family, routes = "inet6", recordedRoutes6
		route = fmt.Sprintf("local %s dev kube-ipvs0 table local proto kernel scope global pref medium", p.Addr())
	}
	line := fmt.Sprintf("    %s %s scope global", family, p)
	at := slices.IndexFunc(all, func(l string) bool {
		return strings.HasPrefix(l, line+" kube-ipvs0") || strings.TrimSpace(l) == strings.TrimSpace(line)
	})
	table := k.lines(routes)
	switch {
	case k.lenient && (words[1] == "add") == (at >= 0):
		return nil
	case words[1] == "add" && at < 0:
		if family == "inet" {
			line += " kube-ipvs0"
		}
		all, table = slices.Insert(all, device+3, line), append(table, route)
	case words[1] == "del" && at >= 0:
		all = slices.Delete(all, at, at+1)
		was := len(table)
		table = slices.DeleteFunc(table, func(l string) bool {
			return strings.HasPrefix(l, fmt.Sprintf("local %s dev kube-ipvs0 ", p.Addr()))
		})
		if len(table) != was-1 {
			return fmt.Errorf("%d local routes", was-len(table))
		}
	default:
		return fmt.Errorf("there %t", at >= 0)
	}
	k.write(recordedAddrs, all)
	k.write(routes, table)
	return nil
}

// addresses are those of kube-ipvs0.
func (k *kernelText) addresses() []string {
	var out []string
	on := false
	for _, l := range k.lines(recordedAddrs) {
		if !strings.HasPrefix(l, " ") {
			on = strings.Contains(l, ": kube-ipvs0: ")
		}
		if w := strings.Fields(l); on && strings.HasPrefix(w[0], "inet") && !strings.HasPrefix(w[1], "fe80:") {
			out = append(out, w[1])
		}
	}
	return out
}

// A tableText is a table of iptables as iptables-save prints it.
type tableText struct {
	name   string
	chains []string // ":INPUT ACCEPT"
	rules  []string // "-A INPUT …"
}

// tables are those of a file, without counters.
func (k *kernelText) tables(file string) []*tableText {
	var out []*tableText
	for _, l := range k.lines(file) {
		switch {
		case strings.HasPrefix(l, "*"):
			out = append(out, &tableText{name: l[1:]})
		case strings.HasPrefix(l, ":"):
			w := strings.Fields(l)
			t := out[len(out)-1]
			t.chains = append(t.chains, w[0]+" "+w[1])
		case strings.Contains(l, "-A "):
			t := out[len(out)-1]
			t.rules = append(t.rules, l[strings.Index(l, "-A "):])
		}
	}
	return out
}

func (k *kernelText) writeTables(file string, tables []*tableText) {
	program := map[string]string{recordedRules4: "iptables-save", recordedRules6: "ip6tables-save"}[file]
	out := []string{"# Generated by " + program + " v1.8.9 on Sat Nov 28 17:07:10 2026"}
	for _, t := range tables {
		out = append(out, "*"+t.name)
		for _, c := range t.chains {
			out = append(out, c+" [0:0]")
		}
		for _, r := range t.rules {
			out = append(out, "[0:0] "+r)
		}
		out = append(out, "COMMIT")
	}
	k.write(file, out)
}

// inChain are the places of the rules of a chain.
func (t *tableText) inChain(chain string) []int {
	var out []int
	for i, r := range t.rules {
		if strings.HasPrefix(r, "-A "+chain+" ") {
			out = append(out, i)
		}
	}
	return out
}

func (t *tableText) has(chain string) bool {
	return slices.ContainsFunc(t.chains, func(c string) bool { return strings.HasPrefix(c, ":"+chain+" ") })
}

// restore does what iptables-restore --noflush does.
func (k *kernelText) restore(c report.RepairCommand) error {
	file := recordedRules4
	if strings.HasPrefix(c.Command[0], "ip6tables") {
		file = recordedRules6
	}
	if !strings.HasSuffix(c.Command[0], "-legacy-restore") {
		return fmt.Errorf("%s is not the backend of the node", c.Command[0])
	}
	tables := k.tables(file)
	var t *tableText
	for line := range strings.Lines(c.Input) {
		if line = strings.TrimSpace(line); line == "COMMIT" || line == "" {
			continue
		}
		if err := t.restored(line); err == nil {
			continue
		} else if !strings.HasPrefix(line, "*") {
			return fmt.Errorf("%q: %w", line, err)
		}
		i := slices.IndexFunc(tables, func(t *tableText) bool { return t.name == line[1:] })
		if i < 0 {
			return fmt.Errorf("no table %s", line)
		}
		t = tables[i]
	}
	for _, t := range tables {
		for _, r := range t.rules {
			if to := jumpOf(r); strings.HasPrefix(to, "KUBE-") && !t.has(to) {
				return fmt.Errorf("%s leads to a chain that is not there", r)
			}
			if _, set, ok := strings.Cut(r, "--match-set "); ok && !strings.Contains(k.files[recordedSets], "create "+strings.Fields(set)[0]+" ") {
				return fmt.Errorf("%s asks a set that is not there", r)
			}
		}
	}
	k.writeTables(file, tables)
	return nil
}

// restored does one line to a table.
func (t *tableText) restored(line string) error {
	if t == nil || strings.HasPrefix(line, "*") {
		return fmt.Errorf("no table")
	}
	verb, rest, _ := strings.Cut(line, " ")
	chain, rule, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(verb, ":") && !t.has(chain) {
		return fmt.Errorf("no chain %s", chain)
	}
	all := t.inChain(chain)
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			return -1
		}
		return n - 1
	}
	switch {
	case strings.HasPrefix(verb, ":"):
		t.rules = slices.DeleteFunc(t.rules, func(r string) bool { return strings.HasPrefix(r, "-A "+verb[1:]+" ") })
		if !t.has(verb[1:]) {
			t.chains = append(t.chains, verb+" -")
		}
	case verb == "-A":
		t.rules = append(t.rules, line)
	case verb == "-I":
		at, rule, _ := strings.Cut(rule, " ")
		n, put := number(at), len(t.rules)
		if n < 0 || n > len(all) {
			return fmt.Errorf("no place %s", at)
		}
		if n < len(all) {
			put = all[n]
		}
		t.rules = slices.Insert(t.rules, put, "-A "+chain+" "+rule)
	case verb == "-D":
		n := number(rule)
		if n >= 0 && n < len(all) {
			n = all[n]
		} else {
			n = slices.Index(t.rules, "-A "+rest)
		}
		if n < 0 {
			return fmt.Errorf("no such rule")
		}
		t.rules = slices.Delete(t.rules, n, n+1)
	case verb == "-X":
		if len(all) > 0 {
			return fmt.Errorf("it has rules")
		}
		t.chains = slices.DeleteFunc(t.chains, func(c string) bool { return strings.HasPrefix(c, ":"+chain+" ") })
	case verb == "-P":
		for i, c := range t.chains {
			if strings.HasPrefix(c, ":"+chain+" ") {
				t.chains[i] = ":" + chain + " " + rule
			}
		}
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

// state is the node in a form to compare: every file, without the order of lines where the kernel has none.
func (k *kernelText) state() map[string]string {
	out := maps.Clone(k.files)
	delete(out, recordedList) // said by the others
	for _, file := range []string{recordedServers, recordedSets, recordedAddrs, recordedRoutes4, recordedRoutes6} {
		all := k.lines(file)
		for i, l := range all {
			if strings.Contains(l, ": kube-ipvs0: ") {
				_, l, _ = strings.Cut(l, ":") // a new device has a new number
			}
			if file == recordedSets {
				l = without(l, "initval", "bucketsize", "hashsize")
			}
			all[i] = strings.TrimSpace(l)
		}
		slices.SortFunc(all, cmp.Compare)
		out[file] = strings.Join(all, "\n")
	}
	for _, file := range []string{recordedRules4, recordedRules6} {
		var all []string
		for _, t := range k.tables(file) {
			slices.Sort(t.chains)
			slices.SortStableFunc(t.rules, func(a, b string) int { return cmp.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) })
			all = append(append(append(all, t.name), t.chains...), t.rules...)
		}
		out[file] = strings.Join(all, "\n")
	}
	return out
}

// A recordedMutant is a change to a recorded node of IPVS mode.
type recordedMutant struct {
	kind string
	// do changes the node by the dice. It may find nothing to change.
	do func(k *kernelText, dice *rand.Rand) (what string, err error)
	// quiet tells that no packet of a Service goes elsewhere by it, so that nothing is found and nothing is done.
	quiet bool
}

// pick takes one of the lines of a file that fit.
func (k *kernelText) pick(dice *rand.Rand, file, prefix string) []string {
	var in []string
	for _, l := range k.lines(file) {
		if strings.HasPrefix(l, prefix) {
			in = append(in, l)
		}
	}
	return strings.Fields(in[dice.IntN(len(in))])
}

// put replaces words and does the command.
func put(words []string, old, with string) []string {
	out := slices.Clone(words)
	for i := range out {
		if out[i] == old {
			out[i] = with
		}
	}
	return out
}

var recordedMutants = []recordedMutant{
	{"virtual server deleted", func(k *kernelText, dice *rand.Rand) (string, error) {
		s := k.pick(dice, recordedServers, "-A ")
		return strings.Join(s[1:3], " "), k.ipvsadm(append([]string{"-D"}, s[1:3]...))
	}, false},
	{"real server deleted", func(k *kernelText, dice *rand.Rand) (string, error) {
		d := k.pick(dice, recordedServers, "-a ")
		return strings.Join(d, " "), k.ipvsadm(append([]string{"-d"}, d[1:5]...))
	}, false},
	{"real server added", func(k *kernelText, dice *rand.Rand) (string, error) {
		d := k.pick(dice, recordedServers, "-a ")
		to := netip.MustParseAddrPort(d[4])
		d = put(d, d[4], netip.AddrPortFrom(to.Addr(), to.Port()+1000).String())
		return strings.Join(d, " "), k.ipvsadm(d)
	}, false},
	{"weight set to 0", func(k *kernelText, dice *rand.Rand) (string, error) {
		d := k.pick(dice, recordedServers, "-a ")
		d[0] = "-e"
		d = append(d[:6], "-w", "0")
		return strings.Join(d, " "), k.ipvsadm(d)
	}, false},
	{"weight changed", func(k *kernelText, dice *rand.Rand) (string, error) {
		d := k.pick(dice, recordedServers, "-a ")
		d[0] = "-e"
		d = append(d[:6], "-w", "5")
		return strings.Join(d, " "), k.ipvsadm(d)
	}, true},
	{"method changed", func(k *kernelText, dice *rand.Rand) (string, error) {
		d := k.pick(dice, recordedServers, "-a ")
		d[0] = "-e"
		d = put(d, "-m", []string{"-g", "-i"}[dice.IntN(2)])
		return strings.Join(d, " "), k.ipvsadm(d)
	}, false},
	{"scheduler changed", func(k *kernelText, dice *rand.Rand) (string, error) {
		s := k.pick(dice, recordedServers, "-A -t 10.96.")
		s[0] = "-E"
		s = put(s, "rr", "sh")
		return strings.Join(s, " "), k.ipvsadm(s)
	}, false},
	{"persistence changed", func(k *kernelText, dice *rand.Rand) (string, error) {
		s := k.pick(dice, recordedServers, "-A ")
		s[0] = "-E"
		switch {
		case len(s) == 5:
			s = append(s, "-p", "600")
		case dice.IntN(2) == 0:
			s = s[:5]
		default:
			s[6] = "77"
		}
		return strings.Join(s, " "), k.ipvsadm(s)
	}, false},
	{"virtual server added", func(k *kernelText, dice *rand.Rand) (string, error) {
		s := k.pick(dice, recordedServers, "-A ")
		at := netip.MustParseAddrPort(s[2])
		s = put(s, s[2], netip.AddrPortFrom(at.Addr(), 7777).String())
		return strings.Join(s, " "), k.ipvsadm(s)
	}, true},
	{"virtual server for kube-proxy's mark added", func(k *kernelText, dice *rand.Rand) (string, error) {
		d := k.pick(dice, recordedServers, "-a -t 1")
		mark := []string{"-f", "16384"}
		if err := k.ipvsadm(append([]string{"-A"}, append(mark, "-s", "rr")...)); err != nil {
			return "", err
		}
		return "to " + d[4], k.ipvsadm(append([]string{"-a"}, append(mark, d[3:]...)...))
	}, false},
	{"set entry deleted", func(k *kernelText, dice *rand.Rand) (string, error) {
		e := k.pick(dice, recordedSets, "add ")
		e[0] = "del"
		return strings.Join(e, " "), k.ipset(e)
	}, false},
	{"set entry added", func(k *kernelText, dice *rand.Rand) (string, error) {
		e := k.pick(dice, recordedSets, []string{"add KUBE-CLUSTER-IP ", "add KUBE-6-CLUSTER-IP ", "add KUBE-LOOP-BACK ", "add KUBE-EXTERNAL-IP "}[dice.IntN(4)])
		e[2] = strings.NewReplacer(":80", ":7777").Replace(e[2])
		return strings.Join(e, " "), k.ipset(e)
	}, false},
	{"set emptied", func(k *kernelText, dice *rand.Rand) (string, error) {
		e := k.pick(dice, recordedSets, "add ")
		return e[1], k.ipset([]string{"flush", e[1]})
	}, false},
	{"address removed", func(k *kernelText, dice *rand.Rand) (string, error) {
		all := k.addresses()
		a := all[dice.IntN(len(all))]
		return a, k.ip([]string{"addr", "del", a, "dev", "kube-ipvs0"})
	}, false},
	{"address added", func(k *kernelText, dice *rand.Rand) (string, error) {
		a := []string{"10.96.7.99/32", "fd00:96::799/128", "10.244.3.20/32", "fd00:244:3::20/128"}[dice.IntN(4)]
		return a, k.ip([]string{"addr", "add", a, "dev", "kube-ipvs0"})
	}, false},
	{"rule deleted", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t, i := someRule(tables, dice, kubes)
			r := t.rules[i]
			t.rules = slices.Delete(t.rules, i, i+1)
			return r
		})
	}, false},
	{"rule changed", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t, i := someRule(tables, dice, func(r string) bool { return kubes(r) && strings.Contains(r, " --match-set ") })
			t.rules[i] = strings.Replace(t.rules[i], "-m set --match-set", "-m set ! --match-set", 1)
			return t.rules[i]
		})
	}, false},
	{"rule moved", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t, i := someRule(tables, dice, func(r string) bool { return strings.HasPrefix(r, "-A KUBE-SERVICES ") })
			r := t.rules[i]
			t.rules = append(slices.Delete(t.rules, i, i+1), r)
			return r
		})
	}, false},
	{"jump removed", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t, i := someRule(tables, dice, func(r string) bool { return !kubes(r) && strings.Contains(r, "-j KUBE-") })
			r := t.rules[i]
			t.rules = slices.Delete(t.rules, i, i+1)
			return r
		})
	}, false},
	{"chain flushed", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t, i := someRule(tables, dice, kubes)
			chain := strings.Fields(t.rules[i])[1]
			t.rules = slices.DeleteFunc(t.rules, func(r string) bool { return strings.HasPrefix(r, "-A "+chain+" ") })
			return t.name + " " + chain
		})
	}, false},
	{"foreign DROP", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t := tables[0]
			t.rules = append([]string{"-A INPUT -p tcp -j DROP"}, t.rules...)
			return t.name
		})
	}, false},
	{"policy DROP", func(k *kernelText, dice *rand.Rand) (string, error) {
		return otherRules(k, dice, func(tables []*tableText) string {
			t := tables[0]
			for i, c := range t.chains {
				if c == ":OUTPUT ACCEPT" {
					t.chains[i] = ":OUTPUT DROP"
				}
			}
			return t.name
		})
	}, false},
	{"sets destroyed", func(k *kernelText, dice *rand.Rand) (string, error) {
		for _, file := range []string{recordedRules4, recordedRules6} {
			tables := k.tables(file)
			for _, t := range tables {
				t.rules = slices.DeleteFunc(t.rules, func(r string) bool { return strings.Contains(r, "KUBE-") })
				t.chains = slices.DeleteFunc(t.chains, func(c string) bool { return strings.HasPrefix(c, ":KUBE-") })
			}
			k.writeTables(file, tables)
		}
		k.write(recordedSets, []string{"create somebody hash:ip family inet hashsize 1024 maxelem 65536", "create else hash:ip family inet hashsize 1024 maxelem 65536"})
		return "", nil
	}, false},
	{"set of another type that can be swapped", func(k *kernelText, dice *rand.Rand) (string, error) {
		k.files[recordedSets] = strings.Replace(k.files[recordedSets], "create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net ", "create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:net,port,net ", 1)
		return "", nil
	}, false},
	{"set of another type", func(k *kernelText, dice *rand.Rand) (string, error) {
		of := []struct{ set, was, is string }{
			{"KUBE-CLUSTER-IP", "hash:ip,port ", "hash:ip "}, {"KUBE-6-EXTERNAL-IP", "hash:ip,port ", "hash:ip "}, {"KUBE-LOOP-BACK", "hash:ip,port,ip ", "hash:ip,port,net "},
		}[dice.IntN(3)]
		k.files[recordedSets] = strings.Replace(k.files[recordedSets], "create "+of.set+" "+of.was, "create "+of.set+" "+of.is, 1)
		all := k.lines(recordedSets)
		for i, l := range all {
			if w := strings.Fields(l); w[0] == "add" && w[1] == of.set && of.is == "hash:ip " {
				all[i] = strings.Split(l, ",")[0]
			}
		}
		seen := map[string]bool{}
		k.write(recordedSets, slices.DeleteFunc(all, func(l string) bool {
			twice := seen[l]
			seen[l] = true
			return twice
		}))
		return of.set, nil
	}, false},
	{"device removed", func(k *kernelText, _ *rand.Rand) (string, error) {
		return "", k.ip([]string{"link", "del", "kube-ipvs0"})
	}, false},
	{"virtual servers cleared", func(k *kernelText, _ *rand.Rand) (string, error) {
		// One of somebody else's stays.
		k.write(recordedServers, []string{"-A -t 192.0.2.99:99 -s rr"})
		return "", nil
	}, false},
}

// otherRules changes the rules of one family.
func otherRules(k *kernelText, dice *rand.Rand, change func(tables []*tableText) string) (string, error) {
	file := []string{recordedRules4, recordedRules6}[dice.IntN(2)]
	tables := k.tables(file)
	what := change(tables)
	k.writeTables(file, tables)
	return file + ": " + what, nil
}

// someRule is the place of a rule that fits.
func someRule(tables []*tableText, dice *rand.Rand, fits func(r string) bool) (t *tableText, i int) {
	for {
		t = tables[dice.IntN(2)]
		if len(t.rules) == 0 {
			continue
		}
		if i = dice.IntN(len(t.rules)); fits(t.rules[i]) {
			return t, i
		}
	}
}

func kubes(r string) bool { return strings.HasPrefix(r, "-A KUBE-") }

// recordedRounds is how often each kind is made, each time on the next recording and by other dice.
const recordedRounds = 1

// TestRecordedMutants makes changes to nodes that were recorded in IPVS mode, each kind of the hunts and some more, and
// mends them as a plan says. What it asks is what TestRepair of test/audit asks of a kernel: nothing is found any more
// that was not there before the change, and what takes the steps back brings the node to where the change left it.
//
// SVCNET_RECORDED_ROUNDS says how often each kind is made.
//
// SVCNET_RECORDED_KIND=TEXT makes changes of the kinds alone whose name has the text.
func TestRecordedMutants(t *testing.T) {
	rounds := recordedRounds
	if v := os.Getenv("SVCNET_RECORDED_ROUNDS"); v != "" {
		var err error
		if rounds, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	folders := []string{"kube-proxy-1.29-ipvs", "kube-proxy-1.33-ipvs", "kube-proxy-1.36-ipvs"}
	type node struct {
		*kernelText
		found map[string]bool
	}
	var nodes []node
	for _, f := range folders {
		n := node{recordedNode(t, f), map[string]bool{}}
		for _, l := range foundLines(n.read(t).Report) {
			n.found[l] = true
		}
		nodes = append(nodes, n)
	}
	steps := map[string]int{}
	for round := range rounds {
		for i, m := range recordedMutants {
			if !strings.Contains(m.kind, os.Getenv("SVCNET_RECORDED_KIND")) {
				continue
			}
			n := nodes[(i+round)%len(nodes)]
			t.Run(fmt.Sprintf("%s on %s", m.kind, folders[(i+round)%len(nodes)]), func(t *testing.T) {
				k := n.clone()
				what, err := m.do(k, rand.New(rand.NewPCG(uint64(round), uint64(i))))
				if err != nil {
					t.Fatal(err)
				}
				fresh := func(r *explain.Reading) []string {
					return slices.DeleteFunc(foundLines(r.Report), func(l string) bool { return n.found[l] })
				}
				broken := k.read(t)
				found := fresh(broken)
				p := Make(broken, Options{})
				made := mendRecorded(t, k, broken, p, n.found)
				if t.Failed() {
					t.Logf("%s", what)
					return
				}
				for kind, n := range made {
					steps[kind] += n
				}
				if m.quiet {
					if len(found) > 0 || len(made) > 0 {
						t.Errorf("%s: found %q, and steps %v, though no packet goes elsewhere", what, found, made)
					}
					return
				}
				if len(found) == 0 {
					t.Logf("%s: nothing is found", what)
				} else if len(made) == 0 {
					t.Errorf("%s: nothing is done about\n  %s", what, strings.Join(found, "\n  "))
				}
			})
		}
	}
	t.Logf("steps: %v", steps)
	for _, kind := range []string{kindIPVS, kindIPSet, kindAddress, kindIPTables} {
		if steps[kind] == 0 && os.Getenv("SVCNET_RECORDED_KIND") == "" {
			t.Errorf("no step of kind %s was made", kind)
		}
	}
}

// foundLines are findings, each on a line.
func foundLines(r *report.Report) []string {
	var out []string
	for i := range r.Findings {
		f := &r.Findings[i]
		out = append(out, fmt.Sprintf("%s %s/%s %s: %s", f.ID, f.Object.Namespace, f.Object.Name, f.Subject, f.Message))
	}
	for _, u := range r.Unknown {
		out = append(out, "unknown: "+u.ID+": "+u.Text)
	}
	return out
}

// mendRecorded does the steps of a plan to a node, asks what that led to, and takes them back. It gives how many steps of
// each kind were done.
func mendRecorded(t *testing.T, k *kernelText, broken *explain.Reading, p *report.RepairPlan, base map[string]bool) map[string]int {
	t.Helper()
	was := k.state()
	// An object that two steps change is at first as before the one, and at last as the other leaves it.
	standings := func(r *explain.Reading, want Standing) {
		last := map[string]int{}
		for i, s := range p.Steps {
			for _, e := range s.Edits {
				if at := e.Table + e.Object; want == Done || last[at] == 0 {
					last[at] = i + 1
				}
			}
		}
		for i, s := range p.Steps {
			for _, e := range s.Edits {
				if last[e.Table+e.Object] != i+1 {
					continue
				}
				if got, err := StandingOf(r.Node(), s.Kind, e); err != nil || got != want {
					lines, there, _ := Find(r.Node(), s.Kind, e)
					t.Errorf("step %q, %s of %s: it is %s (%v), and ought to be %s:\n  was  %q\n  will %q\n  is   %q, there %t", s.Title, e.Object, e.Table, got, err, want, e.Was, e.Will, lines, there)
				}
			}
		}
	}
	standings(broken, Before)
	made := map[string]int{}
	for _, s := range p.Steps {
		if s.Kind == KindAdvice {
			continue
		}
		made[s.Kind]++
		if s.Title == "" || s.Reason == "" || s.Affects == "" || s.Risk == "" || len(s.Edits) == 0 {
			t.Errorf("a step that does not say enough: %+v", s)
		}
		if err := k.do(s.Do); err != nil {
			t.Fatalf("%s: %v\n%s", s.Title, err, s.Do.Input)
		}
	}
	if len(made) == 0 {
		return nil
	}
	mended := k.read(t)
	standings(mended, Done)
	if again := Make(mended, Options{}); slices.ContainsFunc(again.Steps, func(s report.RepairStep) bool { return s.Kind != KindAdvice }) {
		t.Errorf("a second plan has steps: %q", again.Steps[len(again.Steps)-1].Title)
	}
	for _, l := range foundLines(mended.Report) {
		if !base[l] {
			t.Errorf("found after the steps: %s", l)
		}
	}
	for _, s := range slices.Backward(p.Steps) {
		if s.Kind == KindAdvice {
			continue
		}
		if err := k.do(s.Undo); err != nil {
			t.Fatalf("take back: %s: %v\n%s", s.Title, err, s.Undo.Input)
		}
	}
	if diff := gocmp.Diff(was, k.state()); diff != "" {
		t.Errorf("the node before the steps (-) and with them taken back (+):\n%s", diff)
	}
	return made
}
