package audit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// nftText is what `nft list table` prints of one table, as parts that can be changed and loaded again.
type nftText struct {
	name string // "ip kube-proxy"
	// head are the lines of the table itself: its comment, its flags.
	head   []string
	blocks []*nftBlock
}

// An nftBlock is a chain, a set or a map.
type nftBlock struct {
	kind, name string
	// head is the declaration: type, hook, priority, comment, flags.
	head []string
	// lines are the rules of a chain, or the entries of a set or map.
	lines []string
}

// parseNFT reads the output of nft list. Counters go, and entries that rules put into sets: they say when, not what.
func parseNFT(text string) []*nftText {
	var out []*nftText
	var t *nftText
	var b *nftBlock
	entries, within := "", false
	for line := range strings.Lines(text) {
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		line = strings.TrimSpace(line)
		switch {
		case within:
			entries += " " + line
		case line == "":
			continue
		case depth == 0:
			if name, ok := strings.CutSuffix(line, " {"); ok {
				t = &nftText{name: strings.TrimPrefix(name, "table ")}
				out = append(out, t)
			}
			continue
		case depth == 1:
			if name, ok := strings.CutSuffix(line, " {"); ok {
				kind, name, _ := strings.Cut(name, " ")
				b = &nftBlock{kind: kind, name: name}
				t.blocks = append(t.blocks, b)
			} else if line != "}" {
				t.head = append(t.head, line)
			}
			continue
		case strings.HasPrefix(line, "elements = {"):
			entries, within = strings.TrimPrefix(line, "elements = {"), true
		case b.kind == "chain" && !strings.HasPrefix(line, "type ") && !strings.HasPrefix(line, "comment "):
			b.lines = append(b.lines, nftCounters.ReplaceAllString(line, "counter"))
			continue
		default:
			b.head = append(b.head, line)
			continue
		}
		if list, ended := strings.CutSuffix(entries, "}"); ended {
			within = false
			if !b.dynamic() {
				b.lines = splitEntries(list)
			}
		}
	}
	return out
}

var nftCounters = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// splitEntries splits at commas outside of quotes.
func splitEntries(list string) []string {
	var out []string
	quoted, begun := false, 0
	for i, c := range list + "," {
		switch {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			if e := strings.TrimSpace(list[begun:i]); e != "" {
				out = append(out, e)
			}
			begun = i + 1
		}
	}
	return out
}

// dynamic tells sets into which rules put entries.
func (b *nftBlock) dynamic() bool {
	return slices.ContainsFunc(b.head, func(l string) bool { return strings.HasPrefix(l, "flags ") && strings.Contains(l, "dynamic") })
}

// base is the declaration of a base chain, empty for other chains.
func (b *nftBlock) base() string {
	for _, l := range b.head {
		if b.kind == "chain" && strings.HasPrefix(l, "type ") {
			return l
		}
	}
	return ""
}

// String is for nft -f.
func (t *nftText) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "table %s {\n", t.name)
	for _, l := range t.head {
		fmt.Fprintf(&out, "\t%s\n", l)
	}
	for _, b := range t.blocks {
		fmt.Fprintf(&out, "\t%s %s {\n", b.kind, b.name)
		for _, l := range b.head {
			fmt.Fprintf(&out, "\t\t%s\n", l)
		}
		switch {
		case b.kind == "chain":
			for _, l := range b.lines {
				fmt.Fprintf(&out, "\t\t%s\n", l)
			}
		case len(b.lines) > 0:
			fmt.Fprintf(&out, "\t\telements = { %s }\n", strings.Join(b.lines, ", "))
		}
		out.WriteString("\t}\n")
	}
	out.WriteString("}\n")
	return out.String()
}

func (t *nftText) clone() *nftText {
	out := &nftText{name: t.name, head: slices.Clone(t.head)}
	for _, b := range t.blocks {
		out.blocks = append(out.blocks, &nftBlock{b.kind, b.name, slices.Clone(b.head), slices.Clone(b.lines)})
	}
	return out
}

// sort puts what has no order into one: kube-proxy writes its chains as they come. That of base chains stays, because
// the kernel runs those of one priority in the order in which they were registered.
func (t *nftText) sort() {
	rank := func(b *nftBlock) int {
		switch {
		case b.kind != "chain":
			return 0
		case b.base() != "":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(t.blocks, func(a, b *nftBlock) int {
		if c := cmp.Compare(rank(a), rank(b)); c != 0 || rank(a) == 1 {
			return c
		}
		return cmp.Compare(a.name, b.name)
	})
	for _, b := range t.blocks {
		if b.kind != "chain" {
			slices.Sort(b.lines)
		}
	}
}

// block finds a chain, set or map by name.
func (t *nftText) block(name string) *nftBlock {
	for _, b := range t.blocks {
		if b.name == name {
			return b
		}
	}
	return nil
}

// entryKey is the key of an entry of a map or set, and what it maps to.
func entryKey(entry string) (key, to string) {
	key, to, _ = strings.Cut(nftComment.ReplaceAllString(entry, ""), " : ")
	return key, to
}

var nftComment = regexp.MustCompile(` comment "[^"]*"`)

// cutComment parts a rule from its comment, which stands at its end.
func cutComment(rule string) (body, comment string) {
	if at := nftComment.FindStringIndex(rule); at != nil {
		return rule[:at[0]], rule[at[0]:]
	}
	return rule, ""
}

var nftServiceName = regexp.MustCompile(`\b(?:service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-([a-z0-9-]+)/([a-z0-9-]+)/`)

// nftServiceOf is the Service, as NAMESPACE/NAME, that the first name of a chain or set in a text is of.
func nftServiceOf(text string) string {
	if m := nftServiceName.FindStringSubmatch(text); m != nil {
		return m[1] + "/" + m[2]
	}
	return ""
}

// TestNFTText reads a table as nft prints it, and writes it for nft -f: nothing is lost but what says when.
func TestNFTText(t *testing.T) {
	const listed = `table ip kube-proxy {
	comment "rules for kube-proxy"
	set affinity-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 {
		type ipv4_addr
		flags dynamic,timeout
		timeout 10m
		elements = { 10.244.1.10 timeout 10m expires 9m58s }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "vmap to drop, or reject"
		elements = { 10.96.7.14 . tcp . 80 comment "store/a, b:web" : goto reject-chain,
			     10.96.7.13 . tcp . 80 comment "store/none:web" : drop }
	}

	chain reject-chain {
		comment "helper"
		counter packets 7 bytes 420 reject
	}

	chain filter-input {
		type filter hook input priority filter; policy accept;
		ct state new jump service-endpoints-check
	}
}
`
	const loaded = `table ip kube-proxy {
	comment "rules for kube-proxy"
	set affinity-25BMXBJX-store/sticky/tcp/web__10.244.1.20/8080 {
		type ipv4_addr
		flags dynamic,timeout
		timeout 10m
	}
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "vmap to drop, or reject"
		elements = { 10.96.7.13 . tcp . 80 comment "store/none:web" : drop, 10.96.7.14 . tcp . 80 comment "store/a, b:web" : goto reject-chain }
	}
	chain filter-input {
		type filter hook input priority filter; policy accept;
		ct state new jump service-endpoints-check
	}
	chain reject-chain {
		comment "helper"
		counter reject
	}
}
`
	tables := parseNFT(listed)
	if len(tables) != 1 {
		t.Fatalf("%d tables", len(tables))
	}
	tables[0].sort()
	if d := gocmp.Diff(loaded, tables[0].String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	key, to := entryKey(tables[0].block("no-endpoint-services").lines[1])
	if key != "10.96.7.14 . tcp . 80" || to != "goto reject-chain" {
		t.Errorf("the entry is read as %q: %q", key, to)
	}
}
