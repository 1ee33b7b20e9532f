package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// testdata/netlink holds rulesets of ours, NAME.nft, with what the kernel (6.18) held of each as messages, NAME.nl, and
// what nft 1.0.6 printed of that, NAME.txt: netlink_linux_test.go loads them again.

// netlinkRecordings are the names of the files of testdata/netlink without their ends.
func netlinkRecordings(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/netlink/*.nl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for i := range files {
		files[i] = strings.TrimSuffix(files[i], ".nl")
	}
	return files
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseNetlink(t testing.TB, name string) *Ruleset {
	t.Helper()
	r, err := ParseNetlink(readFile(t, name+".nl"), name+".nl")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lasting takes out of a listing what changes from one moment to the next.
func lasting(listing string) string {
	return regexp.MustCompile(` expires \S+`).ReplaceAllString(listing, "")
}

// TestNetlinkRecorded: recorded messages print what nft printed then, and say what its text says.
func TestNetlinkRecorded(t *testing.T) {
	for _, name := range netlinkRecordings(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r := parseNetlink(t, name)
			noProblems(t, r)
			want := string(readFile(t, name+".txt"))
			if diff := cmp.Diff(strings.Split(lasting(meant(want)), "\n"), strings.Split(lasting(r.String()), "\n")); diff != "" {
				t.Errorf("nft (-) and the messages (+):\n%s", diff)
			}
			sameAsText(t, r, r.String())
		})
	}
}

// sameAsText compares what messages are read as with what their listing is read as.
func sameAsText(t *testing.T, r *Ruleset, listing string) {
	t.Helper()
	text := parseText(t, listing, "nft.txt")
	inlineInOrder(text)
	inlineInOrder(r)
	if diff := sameRulesets(text, r); diff != "" {
		t.Errorf("text (-) and the messages (+) are read as different data:\n%s", diff)
	}
}

// inlineInOrder renames chains in braces, whose names no listing has, and puts them behind the others.
func inlineInOrder(r *Ruleset) {
	for _, t := range r.Tables {
		slices.SortStableFunc(t.Chains, func(a, b *Chain) int {
			switch {
			case a.Inline == b.Inline:
				return 0
			case a.Inline:
				return 1
			}
			return -1
		})
		names := map[string]string{}
		for _, c := range t.Chains {
			if c.Inline {
				names[c.Name] = fmt.Sprint("in braces ", len(names))
				c.Name = names[c.Name]
			}
		}
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				for _, s := range rule.Statements {
					if v, ok := s.(*Verdict); ok && names[v.Chain] != "" {
						v.Chain = names[v.Chain]
					}
				}
			}
		}
	}
}

// sameAsJSON compares rules only: of declarations JSON leaves out much.
func sameAsJSON(t *testing.T, r, json *Ruleset) {
	t.Helper()
	inlineInOrder(r)
	inlineInOrder(json)
	for _, table := range r.Tables {
		other := json.Table(table.Family, table.Name)
		if other == nil || len(other.Chains) != len(table.Chains) {
			t.Fatalf("table %s: JSON has other chains", table)
		}
		for i, c := range table.Chains {
			if len(other.Chains[i].Rules) != len(c.Rules) {
				t.Fatalf("chain %s of table %s: JSON has other rules", c.Name, table)
			}
			for j, rule := range c.Rules {
				said := other.Chains[i].Rules[j]
				if misprinted.MatchString(said.Text) {
					continue
				}
				if diff := cmp.Diff(said.Statements, rule.Statements, cmpopts.IgnoreUnexported(Set{}), cmpopts.EquateEmpty(),
					cmpopts.IgnoreFields(Set{}, "Handle", "Line")); diff != "" {
					t.Errorf("%s: JSON (-) and the messages (+) are read as different data:\n%s", rule.Text, diff)
				}
			}
		}
	}
}

// misprinted is what nft 1.0.6 prints otherwise than it means it: within a concatenation a field of some bits of a byte
// with the shift by which those were taken out, and ports of connections in a set as of no type.
var misprinted = regexp.MustCompile(`dscp >> 2|\[invalid type\]|"invalid"`)

// meant is a listing without what is misprinted.
func meant(listing string) string {
	listing = strings.ReplaceAll(listing, "dscp >> 2", "dscp")
	return regexp.MustCompile(`0x([0-9a-f]+) \[invalid type\]`).ReplaceAllStringFunc(listing, func(s string) string {
		n, _ := strconv.ParseUint(s[2:strings.IndexByte(s, ' ')], 16, 64)
		return strconv.FormatUint(n, 10)
	})
}

// TestNetlinkCut: a capture that was cut anywhere says so, and what is left of it is read.
func TestNetlinkCut(t *testing.T) {
	data := readFile(t, "testdata/netlink/nat.nl")
	header := bytes.Index(data, []byte("\n\n")) + 2
	whole := parseNetlink(t, "testdata/netlink/nat")
	for n := 0; n < len(data); n += 1 + n/400 {
		r, err := ParseNetlink(data[:n], "x")
		switch {
		case n < header:
			if err == nil {
				t.Errorf("cut behind %d bytes, within its header: no error", n)
			}
		case err != nil:
			t.Errorf("cut behind %d bytes: %v", n, err)
		case len(r.Problems) == 0:
			t.Errorf("cut behind %d bytes: no problem is told", n)
		case len(r.Tables) > len(whole.Tables):
			t.Errorf("cut behind %d bytes: %d tables", n, len(r.Tables))
		}
	}
}

// TestNetlinkDamaged: whatever bytes are changed, reading ends.
func TestNetlinkDamaged(t *testing.T) {
	for _, name := range netlinkRecordings(t) {
		data := readFile(t, name+".nl")
		header := bytes.Index(data, []byte("\n\n")) + 2
		for at := header; at < len(data); at += 97 {
			for _, to := range []byte{0, 1, 0x7f, 0xff} {
				damaged := slices.Clone(data)
				damaged[at] = to
				r, err := ParseNetlink(damaged, "x")
				if err != nil {
					t.Fatalf("%s, byte %d: %v", name, at, err)
				}
				_ = r.String()
			}
		}
	}
}

// messageWriter writes messages in the byte order of some machine.
type messageWriter struct {
	order binary.ByteOrder
	data  []byte
}

func newMessageWriter(order binary.ByteOrder) *messageWriter {
	name := "little-endian"
	if order == binary.ByteOrder(binary.BigEndian) {
		name = "big-endian"
	}
	header := netlinkMagic + "1\nbyte-order " + name + "\ngeneration 3\ninterface 2 eth0\n\n"
	return &messageWriter{order: order, data: []byte(header)}
}

// message writes a message with attributes.
func (w *messageWriter) message(kind uint16, family byte, attrs ...[]byte) {
	body := append([]byte{family, 0, 0, 0}, bytes.Join(attrs, nil)...)
	h := make([]byte, nlmsgHeader)
	w.order.PutUint32(h, uint32(nlmsgHeader+len(body)))
	w.order.PutUint16(h[4:], nfnlSubsysNFTables<<8|kind)
	w.data = append(append(w.data, h...), body...)
}

// nested is an attribute out of others, or of a value.
func (w *messageWriter) nested(kind uint16, values ...[]byte) []byte {
	value := bytes.Join(values, nil)
	a := make([]byte, nlattrHeader, nlattrHeader+len(value)+3)
	w.order.PutUint16(a, uint16(nlattrHeader+len(value)))
	w.order.PutUint16(a[2:], kind)
	a = append(a, value...)
	return append(a, make([]byte, -len(a)&3)...)
}

func (w *messageWriter) text(kind uint16, s string) []byte { return w.nested(kind, []byte(s+"\x00")) }

func (w *messageWriter) number(kind uint16, n uint32) []byte {
	return w.nested(kind, binary.BigEndian.AppendUint32(nil, n))
}

// host is a number as the machine keeps it.
func (w *messageWriter) host(n uint32) []byte {
	b := make([]byte, 4)
	w.order.PutUint32(b, n)
	return b
}

func (w *messageWriter) expression(name string, attrs ...[]byte) []byte {
	return w.nested(nftaListElem, w.text(nftaExprName, name), w.nested(nftaExprData, attrs...))
}

func (w *messageWriter) value(kind uint16, data ...byte) []byte {
	return w.nested(kind, w.nested(nftaDataValue, data))
}

// someRuleset is a ruleset in which values stand in the order of the machine.
func someRuleset(order binary.ByteOrder) []byte {
	w := newMessageWriter(order)
	w.message(nftMsgNewTable, nfprotoInet, w.text(nftaTableName, "t"), w.number(nftaTableFlags, 0))
	w.message(nftMsgNewChain, nfprotoInet, w.text(nftaChainTable, "t"), w.text(nftaChainName, "c"))
	note := append([]byte{noteKeyOrder, 4}, w.host(orderHost)...)
	w.message(nftMsgNewSet, nfprotoInet, w.text(nftaSetTable, "t"), w.text(nftaSetName, "marks"), w.number(nftaSetKeyType, 19),
		w.number(nftaSetKeyLen, 4), w.number(nftaSetFlags, 0), w.nested(nftaSetUserdata, note))
	w.message(nftMsgNewSetElem, nfprotoInet, w.text(nftaSetElemListTable, "t"), w.text(nftaSetElemListSet, "marks"),
		w.nested(nftaSetElemListElements,
			w.nested(nftaListElem, w.value(nftaSetElemKey, w.host(0x10000)...)),
			w.nested(nftaListElem, w.value(nftaSetElemKey, w.host(0x2)...))))
	rule := func(expressions ...[]byte) {
		w.message(nftMsgNewRule, nfprotoInet, w.text(nftaRuleTable, "t"), w.text(nftaRuleChain, "c"),
			w.nested(nftaRuleExpressions, expressions...))
	}
	load := func(key uint32) []byte {
		return w.expression("meta", w.number(nftaMetaKey, key), w.number(nftaMetaDreg, nftReg1))
	}
	compare := func(data ...byte) []byte {
		return w.expression("cmp", w.number(nftaCmpSreg, nftReg1), w.number(nftaCmpOp, 0), w.value(nftaCmpData, data...))
	}
	const mark, iif = 3, 4
	rule(load(mark), compare(w.host(0x1234)...))
	rule(load(mark), w.expression("bitwise", w.number(nftaBitwiseSreg, nftReg1), w.number(nftaBitwiseDreg, nftReg1),
		w.number(nftaBitwiseLen, 4), w.value(nftaBitwiseMask, w.host(0xff)...), w.value(nftaBitwiseXor, w.host(0)...)),
		compare(w.host(0x12)...))
	rule(load(iif), compare(w.host(2)...))
	rule(load(mark), w.expression("lookup", w.number(nftaLookupSreg, nftReg1), w.text(nftaLookupSet, "marks")))
	rule(load(nftMetaNFProto), compare(nfprotoIPv4),
		w.expression("payload", w.number(nftaPayloadDreg, nftReg1), w.number(nftaPayloadBase, 1), w.number(nftaPayloadOffset, 16),
			w.number(nftaPayloadLen, 4)), compare(10, 0, 0, 1),
		w.expression("immediate", w.number(nftaImmediateDreg, nftReg1), w.value(nftaImmediateData, w.host(0x4000)...)),
		w.expression("meta", w.number(nftaMetaKey, mark), w.number(nftaMetaSreg, nftReg1)))
	w.message(nftMsgNewGen, 0, w.number(1, 3))
	return w.data
}

// TestNetlinkByteOrder: what a machine of the other byte order holds is read as the same.
func TestNetlinkByteOrder(t *testing.T) {
	const want = `table inet t {
	set marks {
		type mark
		elements = { 0x00000002, 0x00010000 }
	}

	chain c {
		meta mark 0x00001234
		meta mark & 0x000000ff == 0x00000012
		iif "eth0"
		meta mark @marks
		ip daddr 10.0.0.1 meta mark set 0x00004000
	}
}
`
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		r, err := ParseNetlink(someRuleset(order), "x")
		if err != nil {
			t.Fatal(err)
		}
		noProblems(t, r)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(r.String(), "\n")); diff != "" {
			t.Errorf("%v (-want +got):\n%s", order, diff)
		}
	}
}

// TestNetlinkUnreadable: what cannot be read is named where it stands, and nothing of the rule is lost.
func TestNetlinkUnreadable(t *testing.T) {
	number := func(w *messageWriter, kind, n uint32) []byte { return w.number(uint16(kind), n) }
	for name, tt := range map[string]struct {
		expression func(w *messageWriter) []byte
		want       string
	}{
		"a name that is not known": {func(w *messageWriter) []byte { return w.expression("teleport") }, "teleport"},
		"a register that nothing was loaded into": {func(w *messageWriter) []byte {
			return w.expression("cmp", number(w, nftaCmpSreg, nftReg4), number(w, nftaCmpOp, 0), w.value(nftaCmpData, 1))
		}, "cmp"},
		"a key that is not known": {func(w *messageWriter) []byte {
			return w.expression("meta", number(w, nftaMetaKey, 999), number(w, nftaMetaDreg, nftReg1))
		}, "meta"},
		"a set that is not there": {func(w *messageWriter) []byte {
			return w.expression("lookup", number(w, nftaLookupSreg, nftReg1), w.text(nftaLookupSet, "gone"))
		}, "lookup"},
		"a verdict that is not known": {func(w *messageWriter) []byte {
			return w.expression("immediate", number(w, nftaImmediateDreg, 0),
				w.nested(nftaImmediateData, w.nested(nftaDataVerdict, number(w, nftaVerdictCode, 77))))
		}, "immediate"},
		"no attributes": {func(w *messageWriter) []byte { return w.nested(nftaListElem) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMessageWriter(binary.LittleEndian)
			w.message(nftMsgNewTable, nfprotoIPv4, w.text(nftaTableName, "t"))
			w.message(nftMsgNewChain, nfprotoIPv4, w.text(nftaChainTable, "t"), w.text(nftaChainName, "c"))
			w.message(nftMsgNewRule, nfprotoIPv4, w.text(nftaRuleTable, "t"), w.text(nftaRuleChain, "c"),
				w.nested(nftaRuleExpressions, w.expression("notrack"), tt.expression(w), w.expression("counter")))
			w.message(nftMsgNewGen, 0)
			r, err := ParseNetlink(w.data, "x")
			if err != nil {
				t.Fatal(err)
			}
			got := r.Tables[0].Chains[0].Rules[0].Statements
			u, ok := got[1].(*Unreadable)
			if len(got) != 3 || !ok || u.Text != tt.want || u.Why == "" || len(r.Problems) != 1 {
				t.Errorf("%v, problems %v", got, r.Problems)
			}
		})
	}
}

// TestNetlinkNothingElse: other data is refused.
func TestNetlinkNothingElse(t *testing.T) {
	for _, data := range []string{
		"", "table ip x {\n}\n", netlinkMagic, netlinkMagic + "1\n\n", netlinkMagic + "2\nbyte-order little-endian\n\n",
		netlinkMagic + "1\nbyte-order middle\n\n",
	} {
		if r, err := ParseNetlink([]byte(data), "x"); err == nil || r != nil {
			t.Errorf("%q: %v", data, r)
		}
	}
	if IsNetlink([]byte("svcnet")) || !strings.HasPrefix(snapshot.NetlinkMagic, netlinkMagic) {
		t.Errorf("the first line that is looked for is %q, and %q is written", netlinkMagic, snapshot.NetlinkMagic)
	}
}

// ruleByRule is a capture in pieces: each has one rule, its table and chain, and the sets that the rule names.
func ruleByRule(data []byte) [][]byte {
	h, rest, err := parseNetlinkHeader(data)
	if err != nil {
		return nil
	}
	header := data[:len(data)-len(rest)]
	type raw struct {
		netlinkMessage
		bytes []byte
	}
	var all []raw
	for len(rest) > 0 {
		size := h.order.Uint32(rest)
		if kind := h.order.Uint16(rest[4:]); kind>>8 == nfnlSubsysNFTables {
			all = append(all, raw{netlinkMessage{kind & 0xff, rest[nlmsgHeader], rest[nlmsgHeader+nfgenHeader : size]}, rest[:size]})
		}
		rest = rest[(size+3)&^3:]
	}
	var out [][]byte
	for _, rule := range all {
		if rule.kind != nftMsgNewRule {
			continue
		}
		of := parseAttributes(h.order, rule.attrs)
		piece := slices.Clone(header)
		for _, m := range all {
			a := parseAttributes(h.order, m.attrs)
			keep := m.kind == nftMsgNewTable && a.text(nftaTableName) == of.text(nftaRuleTable) ||
				m.kind == nftMsgNewChain && a.text(nftaChainName) == of.text(nftaRuleChain) ||
				(m.kind == nftMsgNewSet || m.kind == nftMsgNewSetElem) && bytes.Contains(rule.bytes, a[nftaSetName]) ||
				m.kind == nftMsgNewGen
			if keep && (m.family == rule.family || m.kind == nftMsgNewGen) {
				if m.kind == nftMsgNewGen {
					piece = append(piece, rule.bytes...)
				}
				piece = append(piece, m.bytes...)
			}
		}
		out = append(out, piece)
	}
	return out
}

func FuzzParseNetlink(f *testing.F) {
	for _, name := range netlinkRecordings(f) {
		for i, piece := range ruleByRule(readFile(f, name+".nl")) {
			if i%7 == 0 { // each is tried before anything is changed
				f.Add(piece)
			}
		}
	}
	f.Add(someRuleset(binary.LittleEndian))
	f.Add(someRuleset(binary.BigEndian))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseNetlink(data, "x")
		if err != nil {
			return
		}
		// What was read can be printed, and the rules say what they print.
		_ = r.String()
		for _, table := range r.Tables {
			for _, c := range table.Chains {
				for _, rule := range c.Rules {
					if len(rule.Statements) > 0 && rule.Text == "" && rule.Comment == "" {
						for _, s := range rule.Statements {
							if u, ok := s.(*Unreadable); !ok || u.Text != "" {
								t.Errorf("a rule with statements prints nothing: %v", rule.Statements)
								break
							}
						}
					}
				}
			}
		}
	})
}
