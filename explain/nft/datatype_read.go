package nft

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcnet/svcnet/explain/paste"
)

// parseValue reads one value of a field from a word as nft prints it, without quotes: a number, a word of the type, an
// address.
func parseValue(f Field, s string) ([]byte, error) {
	if len(s) > paste.Longest {
		return nil, fmt.Errorf("%q is no %s", shorten(s), f.Type)
	}
	t := typeOf(f.Type)
	if v, ok := t.wordValue(s); ok {
		return fitted(v, f)
	}
	switch t.print {
	case text:
		return stringBytes(f, s)
	case addr4, addr6:
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.Is4() != (t.print == addr4) {
			return nil, fmt.Errorf("%q is no %s", s, f.Type)
		}
		return a.AsSlice(), nil
	case linkAddr:
		return linkAddress(f, s)
	case interfaceName:
		// nft prints the name of an interface that it finds, and the number of one that has gone.
		if v, err := strconv.ParseUint(s, 10, 31); err == nil {
			if f.Size == ifNameSize {
				return append(make([]byte, ifNameSize-4), indexBytes(uint32(v))...), nil
			}
			return indexBytes(uint32(v)), nil
		}
		return stringBytes(Field{Type: f.Type, Size: ifNameSize}, s)
	case relativeTime:
		d, err := parseDuration(s)
		if err != nil {
			return nil, err
		}
		return fitted(uint64(d.Milliseconds()), f)
	case date:
		return parseDate(f, s)
	case hourOfDay:
		return parseHour(f, s)
	case tcHandle:
		return parseHandle(f, s)
	case labelBit:
		bit, err := strconv.ParseUint(s, 10, 16)
		if err != nil || f.Size <= 0 || bit >= uint64(8*f.Size) {
			return nil, fmt.Errorf("%q is no bit of a label", s)
		}
		data := make([]byte, f.Size)
		data[f.Size-1-int(bit/8)] = 1 << (bit % 8)
		return data, nil
	}
	if v, err := strconv.ParseUint(s, 0, 64); err == nil {
		return fitted(v, f)
	}
	if f.Size > 8 {
		n, ok := new(big.Int).SetString(s, 0)
		if ok && n.Sign() >= 0 && n.BitLen() <= 8*f.Size {
			return n.FillBytes(make([]byte, f.Size)), nil
		}
	}
	return nil, fmt.Errorf("%q is no %s", s, f.Type)
}

// wordValue is what a word of the type stands for.
func (t *datatype) wordValue(s string) (uint64, bool) {
	if len(t.words) == 0 || s == "" || t.name != TypeEtherType && s[0] >= '0' && s[0] <= '9' {
		return 0, false
	}
	for i := range t.words {
		if t.words[i].name == s {
			return t.words[i].value, true
		}
	}
	return 0, false
}

func (t *datatype) hasWord(s string) bool {
	_, ok := t.wordValue(s)
	return ok
}

// fitted is a number as wide as the field.
func fitted(v uint64, f Field) ([]byte, error) {
	if f.Size <= 0 || f.Size > maxValueSize {
		return nil, fmt.Errorf("nothing says how wide a value of %s is here", f.Type)
	}
	data, ok := numberBytes(v, f.Size)
	if !ok {
		return nil, fmt.Errorf("%d does not fit into the %d bytes of %s", v, f.Size, f.Type)
	}
	return data, nil
}

// maxValueSize is the longest value that the kernel takes (NFT_DATA_VALUE_MAXLEN).
const maxValueSize = 64

// stringBytes is a string with zeros behind it. nft writes a star that belongs to a name as "\*".
func stringBytes(f Field, s string) ([]byte, error) {
	if name, ok := strings.CutSuffix(s, `\*`); ok {
		s = name + "*"
	}
	if f.Size <= 0 || len(s) > f.Size || strings.IndexByte(s, 0) >= 0 {
		return nil, fmt.Errorf("%q does not fit into the %d bytes of %s", s, f.Size, f.Type)
	}
	data := make([]byte, f.Size)
	copy(data, s)
	return data, nil
}

func linkAddress(f Field, s string) ([]byte, error) {
	data := make([]byte, 0, 8)
	for part := range strings.SplitSeq(s, ":") {
		v, err := strconv.ParseUint(part, 16, 8)
		if err != nil || len(part) > 2 {
			return nil, fmt.Errorf("%q is no %s", s, f.Type)
		}
		data = append(data, byte(v))
	}
	if f.Size > 0 && len(data) != f.Size {
		return nil, fmt.Errorf("%q is no %s", s, f.Type)
	}
	return data, nil
}

// parseDuration reads "1d2h3m4s5ms" as nft prints it (time_parse); a number alone is seconds.
func parseDuration(s string) (time.Duration, error) {
	if v, err := strconv.ParseUint(s, 10, 32); err == nil {
		return time.Duration(v) * time.Second, nil
	}
	rest := s
	var ms int64
	for rest != "" {
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		v, err := strconv.ParseInt(rest[:n], 10, 48)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration", s)
		}
		rest = rest[n:]
		var unit int64
		switch {
		case strings.HasPrefix(rest, "ms"):
			unit, rest = 1, rest[2:]
		case strings.HasPrefix(rest, "s"):
			unit, rest = 1000, rest[1:]
		case strings.HasPrefix(rest, "m"):
			unit, rest = 60*1000, rest[1:]
		case strings.HasPrefix(rest, "h"):
			unit, rest = 60*60*1000, rest[1:]
		case strings.HasPrefix(rest, "d"):
			unit, rest = 24*60*60*1000, rest[1:]
		default:
			return 0, fmt.Errorf("%q is no duration", s)
		}
		if v > (longestDuration-ms)/unit {
			return 0, fmt.Errorf("%q is too long", s)
		}
		ms += v * unit
	}
	if s == "" {
		return 0, fmt.Errorf("%q is no duration", s)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// parseDate reads "2023-01-01 10:00:00". nft prints the time of the zone that it runs in, which no listing names: the
// value is that of the same words in UTC.
func parseDate(f Field, s string) ([]byte, error) {
	at, err := time.Parse(time.DateTime, s)
	if err != nil {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil || v > uint64(lastSecond) {
			return nil, fmt.Errorf("%q is no date", s)
		}
		return fitted(v*1e9, f)
	}
	seconds := at.Unix()
	if seconds < 0 || seconds > lastSecond {
		return nil, fmt.Errorf("%q is no date", s)
	}
	return fitted(uint64(seconds)*1e9, f)
}

// lastSecond is the last of "meta time", which counts nanoseconds.
const lastSecond = (1<<63 - 1) / int64(time.Second)

// parseHour reads "10:00" or "10:00:30" as seconds from midnight, of the zone that nft ran in (see parseDate).
func parseHour(f Field, s string) ([]byte, error) {
	at, err := time.Parse("15:04:05", s)
	if err != nil {
		at, err = time.Parse("15:04", s)
	}
	if err != nil {
		v, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no hour", s)
		}
		return fitted(v, f)
	}
	return fitted(uint64(at.Hour()*3600+at.Minute()*60+at.Second()), f)
}

// parseHandle reads a handle of tc, "1:10".
func parseHandle(f Field, s string) ([]byte, error) {
	switch s {
	case "none":
		return fitted(0, f)
	case "root":
		return fitted(0xffffffff, f)
	}
	major, minor, ok := strings.Cut(s, ":")
	if !ok {
		v, err := strconv.ParseUint(s, 0, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no %s", s, f.Type)
		}
		return fitted(v, f)
	}
	hi, err := strconv.ParseUint("0"+major, 16, 16)
	lo, err2 := strconv.ParseUint("0"+minor, 16, 16)
	if err != nil || err2 != nil {
		return nil, fmt.Errorf("%q is no %s", s, f.Type)
	}
	return fitted(hi<<16|lo, f)
}

// orValue adds the bits of one value of flags to another.
func orValue(into, more []byte) []byte {
	if len(into) != len(more) {
		return more
	}
	for i := range into {
		into[i] |= more[i]
	}
	return into
}

// prefixEnd is the last value of a prefix, and its first with the bits behind the prefix cleared; ok is false where the
// prefix is longer than the value. Bits count from the first bit of the type, which for dscp is not that of the byte.
func prefixEnd(f Field, value []byte, bits int) (first, last []byte, ok bool) {
	bits += 8*len(value) - f.Type.bitsOf(len(value))
	if bits < 0 || bits > 8*len(value) {
		return nil, nil, false
	}
	first, last = append([]byte(nil), value...), append([]byte(nil), value...)
	for i := range value {
		switch n := bits - 8*i; {
		case n >= 8:
		case n <= 0:
			first[i], last[i] = 0, 0xff
		default:
			first[i] &^= 0xff >> n
			last[i] |= 0xff >> n
		}
	}
	return first, last, true
}

// span is one part of a key of an entry: a value, or from lo to hi.
type span struct{ lo, hi []byte }

// spanOfName is the names that begin as a pattern "eth*" says; ok is false where it is a plain name.
func spanOfName(f Field, s string) (span, bool) {
	if typeOf(f.Type).print != text || !strings.HasSuffix(s, "*") || strings.HasSuffix(s, `\*`) {
		return span{}, false
	}
	n := len(s) - 1
	if n == 0 || n > f.Size {
		return span{}, false
	}
	v := make([]byte, f.Size)
	copy(v, s[:n])
	lo, hi, ok := prefixEnd(f, v, 8*n)
	return span{lo, hi}, ok
}

// joinSpans lays parts of a key out as Entry.Start and End are.
func joinSpans(fields []Field, spans []span) (start, end []byte) {
	if len(spans) == 1 {
		return spans[0].lo, spans[0].hi
	}
	width, ranged := 0, false
	for i, s := range spans {
		width += fields[i].Width()
		ranged = ranged || s.hi != nil
	}
	lay := func(high bool) []byte {
		b := make([]byte, 0, width)
		for i, s := range spans {
			v := s.lo
			if high && s.hi != nil {
				v = s.hi
			}
			at := len(b)
			b = append(b, v...)
			for len(b) < at+fields[i].Width() {
				b = append(b, 0)
			}
		}
		return b
	}
	start = lay(false)
	if ranged {
		end = lay(true)
	}
	return start, end
}

// listedFields are the fields of a set for those of an expression, as a listing has them: an interface is given by its
// name, see TypeIfindex, and bytes without a name print in decimal where they are the whole key.
func listedFields(fields []Field) []Field {
	fields = slices.Clone(fields)
	for i := range fields {
		switch fields[i].Type {
		case TypeIfindex:
			fields[i].Size = ifNameSize
		case TypeHex:
			if len(fields) == 1 {
				fields[i].Type = TypeInteger
			}
		}
	}
	return fields
}
