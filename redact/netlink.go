package redact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/explain/nft"
)

// A netlink capture (explain/nft says how it looks) is rewritten attribute by attribute. What each of them holds stands in
// the tables below (include/uapi/linux/netfilter/nf_tables.h); one that does not stand there may hold anything, and so
// may bytes of a packet that are no field: then nothing of the capture is given away. In the end both captures are
// printed, and the new text must be the old one with its names and addresses renamed.

// kindOf is what an attribute holds.
type kindOf int

const (
	plain   kindOf = iota + 1 // numbers, and words of the kernel
	named                     // a name of the ruleset
	message                   // text for people
	devices                   // devices by name, nested
	notes                     // nft's own notes
	exprs                     // a list of expressions
	expr                      // one expression
	keys                      // elements of a set, a list
	object                    // what an object holds
	hook                      // a hook with its devices
)

// attributeKinds are what the attributes of each type of message hold (NFT_MSG_NEW*).
var attributeKinds = map[uint16]map[uint16]kindOf{
	0: {1: named, 2: plain, 3: plain, 4: plain, 5: plain, 6: notes, 7: plain},
	3: {1: named, 2: plain, 3: named, 4: hook, 5: plain, 6: plain, 7: plain, 8: plain, 9: plain, 10: plain, 11: plain, 12: notes},
	6: {1: named, 2: named, 3: plain, 4: exprs, 5: plain, 6: plain, 7: notes, 8: plain, 9: plain, 10: plain, 11: plain},
	9: {1: named, 2: named, 3: plain, 4: plain, 5: plain, 6: plain, 7: plain, 8: plain, 9: plain, 10: plain, 11: plain, 12: plain, 13: notes,
		14: plain, 15: plain, 16: plain, 17: expr, 18: exprs, 19: plain, 20: plain},
	12: {1: named, 2: named, 3: keys, 4: plain},
	15: {1: plain, 2: plain, 3: message},
	18: {1: named, 2: named, 3: plain, 4: object, 5: plain, 6: plain, 7: plain, 8: notes},
	22: {1: named, 2: named, 3: hook, 4: plain, 5: plain, 6: plain, 7: plain},
}

// capture is a netlink capture while it is rewritten.
type capture struct {
	r     *renaming
	order binary.ByteOrder
	// family of the message at hand, NFPROTO_*.
	family byte
	sets   map[string]setTypes
}

// setTypes is what the keys and data of a set are.
type setTypes struct {
	key, data          []nft.Type
	keySize, dataSize  int
	interval, verdicts bool
	dataInterval       bool
	// elements is how many there are, and highest the highest of them as a number of the machine: keys that count from
	// 0 are those of numgen, and no addresses.
	elements, highest uint32
}

// netlink rewrites a capture. The error says what in it cannot be.
func (r *renaming) netlink(data string) (string, error) {
	end := strings.Index(data, "\n\n")
	if end < 0 || !nft.IsNetlink([]byte(data)) {
		return "", fmt.Errorf("it is no capture of netlink messages")
	}
	c := &capture{r: r, order: binary.LittleEndian, sets: map[string]setTypes{}}
	if strings.Contains(data[:end], "\nbyte-order big-endian") {
		c.order = binary.BigEndian
	}
	head := r.eachLine(data[:end], func(line string) string {
		if rest, ok := strings.CutPrefix(line, "interface "); ok {
			number, device, _ := strings.Cut(rest, " ")
			return "interface " + r.text(number, grammar) + " " + r.text(device, grammar)
		}
		if headLine.MatchString(line) {
			return line
		}
		return r.text(line, name)
	})
	body := []byte(data[end+2:])
	if _, err := c.messages(body, c.declare); err != nil {
		return "", err
	}
	out, err := c.messages(body, c.message)
	if err != nil {
		return "", err
	}
	fresh := head + "\n\n" + string(out)
	return fresh, r.verify(data, fresh)
}

// headLine is a line of a capture's head that says nothing of anybody.
var headLine = regexp.MustCompile(`^(?:svcnet nf_tables netlink \d+|byte-order (?:little|big)-endian|generation \d+)$`)

// verify prints both captures: what is left of the old one shows.
func (r *renaming) verify(old, fresh string) error {
	a, err := nft.ParseNetlink([]byte(old), "")
	if err != nil {
		return err
	}
	b, err := nft.ParseNetlink([]byte(fresh), "")
	if err != nil {
		return err
	}
	x, y := linesOf(r.nftText(a.String())), linesOf(b.String())
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			return fmt.Errorf("its messages and the text of its rules would not be renamed alike")
		}
	}
	return nil
}

// linesOf are the words of a listing, sorted: elements of a set stand in the order of their values.
func linesOf(text string) []string {
	out := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\n,", c) })
	slices.Sort(out)
	return out
}

// messages gives every message to rewrite and puts the answers together.
func (c *capture) messages(data []byte, rewrite func(kind uint16, attrs []byte) ([]byte, error)) ([]byte, error) {
	var out []byte
	for len(data) > 0 {
		if len(data) < 16 {
			return nil, fmt.Errorf("it ends within a message")
		}
		size := int(c.order.Uint32(data))
		if size < 16 || size > len(data) {
			return nil, fmt.Errorf("it ends within a message")
		}
		kind := c.order.Uint16(data[4:])
		head, body := data[:16], data[16:size]
		data = data[min(len(data), (size+3)&^3):]
		if kind>>8 != 10 || len(body) < 4 { // NFNL_SUBSYS_NFTABLES
			if kind != 3 { // NLMSG_DONE
				return nil, fmt.Errorf("it holds a message of type %d, which is none about rules", kind)
			}
			out = append(out, head...)
			out = append(out, body...)
			out = padded(out)
			continue
		}
		c.family = body[0]
		attrs, err := rewrite(kind&0xff, body[4:])
		if err != nil {
			return nil, err
		}
		start := len(out)
		out = append(out, head...)
		out = append(out, body[:4]...)
		out = append(out, attrs...)
		c.order.PutUint32(out[start:], uint32(len(out)-start))
		out = padded(out)
	}
	return out, nil
}

func padded(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attribute is one attribute; its type has its flags.
type attribute struct {
	kind  uint16
	value []byte
}

func (a attribute) number() uint16 { return a.kind & 0x3fff }

func (c *capture) attributes(data []byte) ([]attribute, error) {
	var out []attribute
	for len(data) > 0 {
		if len(data) < 4 {
			return nil, fmt.Errorf("its attributes do not hold together")
		}
		size := int(c.order.Uint16(data))
		if size < 4 || size > len(data) {
			return nil, fmt.Errorf("its attributes do not hold together")
		}
		out = append(out, attribute{c.order.Uint16(data[2:]), data[4:size:size]})
		data = data[min(len(data), (size+3)&^3):]
	}
	return out, nil
}

// each rewrites the values of attributes, by their numbers.
func (c *capture) each(data []byte, rewrite func(n uint16, value []byte) ([]byte, error)) ([]byte, error) {
	list, err := c.attributes(data)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, a := range list {
		value, err := rewrite(a.number(), a.value)
		if err != nil {
			return nil, err
		}
		head := [4]byte{}
		c.order.PutUint16(head[:], uint16(4+len(value)))
		c.order.PutUint16(head[2:], a.kind)
		out = padded(append(append(out, head[:]...), value...))
	}
	return out, nil
}

// table are the values of attributes by number, the last of each.
func (c *capture) table(data []byte) (map[uint16][]byte, error) {
	list, err := c.attributes(data)
	out := map[uint16][]byte{}
	for _, a := range list {
		out[a.number()] = a.value
	}
	return out, err
}

func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func cText(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// declare notes the types of a set; nothing is rewritten yet.
func (c *capture) declare(kind uint16, attrs []byte) ([]byte, error) {
	if kind != 9 && kind != 12 {
		return nil, nil
	}
	a, err := c.table(attrs)
	if err != nil {
		return nil, err
	}
	if kind == 12 {
		return nil, c.count(cText(a[1]), cText(a[2]), a[3])
	}
	flags := number(a[3])
	s := setTypes{keySize: int(number(a[5])), dataSize: int(number(a[7])), interval: flags&4 != 0}
	s.key, _ = nft.TypesOf(number(a[4]))
	if flags&8 != 0 {
		if s.verdicts = number(a[6]) == 0xffffff00; !s.verdicts {
			s.data, _ = nft.TypesOf(number(a[6]))
		}
	}
	// Data that is a range stands twice as wide (NFTNL_UDATA_SET_DATA_INTERVAL).
	for n := a[13]; len(n) >= 2 && len(n) >= 2+int(n[1]); n = n[2+int(n[1]):] {
		s.dataInterval = s.dataInterval || n[0] == 6 && len(bytes.Trim(n[2:2+int(n[1])], "\x00")) > 0
	}
	c.sets[c.setName(cText(a[1]), cText(a[2]))] = s
	return nil, nil
}

// count looks at the keys of a set as numbers.
func (c *capture) count(table, set string, value []byte) error {
	list, err := c.attributes(value)
	if err != nil {
		return err
	}
	s := c.sets[c.setName(table, set)]
	for _, l := range list {
		a, err := c.table(l.value)
		if err != nil {
			return err
		}
		if k := c.dataOf(a[1]); len(k) == 4 {
			s.highest = max(s.highest, c.order.Uint32(k))
		} else {
			s.highest = 1<<32 - 1
		}
		s.elements++
	}
	c.sets[c.setName(table, set)] = s
	return nil
}

// counts tells whether the keys are 0, 1, 2…
func (s setTypes) counts() bool {
	return len(s.key) == 1 && s.key[0] == nft.TypeInteger && s.highest < s.elements
}

func (c *capture) setName(table, set string) string {
	return fmt.Sprintf("%d %s %s", c.family, table, set)
}

func (c *capture) message(kind uint16, attrs []byte) ([]byte, error) {
	kinds, ok := attributeKinds[kind]
	if !ok {
		return nil, fmt.Errorf("it holds a message of nf_tables of type %d, which nobody knows", kind)
	}
	a, err := c.table(attrs)
	if err != nil {
		return nil, err
	}
	return c.each(attrs, func(n uint16, value []byte) ([]byte, error) {
		switch kinds[n] {
		case plain:
			return value, nil
		case named:
			return c.name(value, grammar), nil
		case message:
			return c.name(value, prose), nil
		case notes:
			return c.notes(kind, value)
		case hook:
			return c.hook(value)
		case exprs:
			return c.expressions(cText(a[1]), value)
		case expr:
			one, err := c.expression(newRegisters(), cText(a[1]), value)
			return one, err
		case keys:
			return c.elements(cText(a[1]), cText(a[2]), value)
		case object:
			return c.object(number(a[3]), value)
		}
		return nil, fmt.Errorf("it holds attribute %d of a message of type %d, which nobody knows", n, kind)
	})
}

// name rewrites text that ends with a zero, or does not.
func (c *capture) name(value []byte, m mode) []byte {
	old := cText(value)
	out := []byte(c.r.text(old, m))
	if len(value) > len(old) {
		out = append(out, 0)
	}
	return out
}

// notes rewrites the comments among nft's notes (libnftnl, udata.h).
func (c *capture) notes(kind uint16, value []byte) ([]byte, error) {
	comment := byte(0)
	if kind == 9 {
		comment = 7 // NFTNL_UDATA_SET_COMMENT
	}
	var out []byte
	for len(value) > 0 {
		if len(value) < 2 || len(value) < 2+int(value[1]) {
			return nil, fmt.Errorf("a note in it is no note of nft")
		}
		n, text := value[0], value[2:2+int(value[1])]
		value = value[2+int(value[1]):]
		switch {
		case n == comment:
			s := c.r.comment(cText(text))
			s = s[:min(len(s), 254)]
			text = append([]byte(s), 0)
		case kind == 9 && n <= 6, n == 1, kind == 0 && n == 2: // orders of bytes, typeof, flags, the version of nft
		default:
			return nil, fmt.Errorf("a note in it is of kind %d, which nobody knows", n)
		}
		out = append(out, n, byte(len(text)))
		out = append(out, text...)
	}
	return out, nil
}

func (c *capture) hook(value []byte) ([]byte, error) {
	return c.each(value, func(n uint16, value []byte) ([]byte, error) {
		switch n {
		case 1, 2:
			return value, nil
		case 3, 4: // a device, or several
			if len(value) > 4 && int(c.order.Uint16(value)) <= len(value) && c.order.Uint16(value[2:])&0x3fff <= 2 && c.order.Uint16(value) >= 4 {
				return c.each(value, func(_ uint16, value []byte) ([]byte, error) { return c.name(value, grammar), nil })
			}
			return c.name(value, grammar), nil
		}
		return nil, fmt.Errorf("it holds attribute %d of a hook, which nobody knows", n)
	})
}

// object rewrites what a named object holds: numbers, but for helpers.
func (c *capture) object(kind uint32, value []byte) ([]byte, error) {
	switch kind {
	case 1, 2, 4, 5, 7, 10: // counter, quota, limit, connlimit, timeout, synproxy
		return value, nil
	case 3: // helper: a name of the kernel's
		return c.each(value, func(n uint16, value []byte) ([]byte, error) {
			if n == 1 {
				return c.name(value, grammar), nil
			}
			return value, nil
		})
	}
	return nil, fmt.Errorf("it holds an object of type %d, in which there may be addresses", kind)
}
