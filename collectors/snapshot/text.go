package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	utf8BOM    = []byte("\xef\xbb\xbf")
	utf16LEBOM = []byte("\xff\xfe")
	utf16BEBOM = []byte("\xfe\xff")
)

// textStart is how many bytes without a NUL make data text: no binary format goes as long without one.
const textStart = 4 << 10

// errBinary says that data is no text in any encoding that commands print.
var errBinary = errors.New("binary data, not text that a command prints")

// decodeText returns data as UTF-8 without a byte order mark, with a note when that took a conversion.
// PowerShell's ">" writes UTF-16; /proc/PID/cmdline separates arguments with NUL bytes, which become line
// ends. CRLF stays: every parser strips it. The result may be a part of data.
func decodeText(data []byte) (text []byte, note string, err error) {
	if rest, ok := bytes.CutPrefix(data, utf8BOM); ok {
		data = rest
	}
	switch order := utf16Order(data); {
	case order != nil:
		return fromUTF16(data, order), "converted from UTF-16", nil
	case bytes.IndexByte(data, 0) < 0:
		return data, "", nil
	case bytes.IndexByte(data, 0) >= textStart:
		// A log of a machine that lost power holds blocks of NUL bytes.
		return bytes.ReplaceAll(data, []byte{0}, []byte{' '}), "NUL bytes shown as spaces", nil
	case isCmdline(data):
		return bytes.ReplaceAll(data, []byte{0}, []byte{'\n'}), "NUL bytes of a command line shown as line ends", nil
	}
	return nil, "", errBinary
}

// utf16Order tells the byte order of UTF-16 text, nil when data is something else. Without a mark, ASCII
// text shows itself by a NUL in every second byte.
func utf16Order(data []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(data, utf16LEBOM):
		return binary.LittleEndian
	case bytes.HasPrefix(data, utf16BEBOM):
		return binary.BigEndian
	}
	head := data[:min(len(data), 512)&^1]
	if len(head) < 8 {
		return nil
	}
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i&1]++
		}
	}
	switch pairs := len(head) / 2; {
	case zeros[1] >= pairs*9/10 && zeros[0] == 0:
		return binary.LittleEndian
	case zeros[0] >= pairs*9/10 && zeros[1] == 0:
		return binary.BigEndian
	}
	return nil
}

// fromUTF16 decodes data, and needs no more memory for it than the text: a surrogate without its other half becomes
// U+FFFD.
func fromUTF16(data []byte, order binary.ByteOrder) []byte {
	each := func(take func(rune)) {
		for i := 0; i+1 < len(data); i += 2 {
			r := rune(order.Uint16(data[i:]))
			if utf16.IsSurrogate(r) {
				pair := unicode.ReplacementChar
				if i+3 < len(data) {
					pair = utf16.DecodeRune(r, rune(order.Uint16(data[i+2:])))
				}
				if r = pair; r != unicode.ReplacementChar {
					i += 2
				}
			}
			take(r)
		}
	}
	size := 0
	each(func(r rune) { size += utf8.RuneLen(r) })
	text := make([]byte, 0, size)
	each(func(r rune) { text = utf8.AppendRune(text, r) })
	return bytes.TrimPrefix(text, utf8BOM)
}

// isCmdline tells whether data is a command line as /proc shows it: arguments of printable characters,
// each ended by one NUL, and at least one of them an option.
func isCmdline(data []byte) bool {
	if len(data) > 128<<10 || data[len(data)-1] != 0 || !bytes.Contains(data, []byte("\x00--")) {
		return false
	}
	for _, b := range data {
		if b != 0 && (b < ' ' || b == 0x7f) {
			return false
		}
	}
	return true
}

// Sample sizes: enough to tell every format by, little enough that a file of any size costs the same.
const (
	sampleBytes = 128 << 10
	sampleLines = 400
	sampleWidth = 2 << 10
)

// sample returns the first lines of text that are not blank, without line ends, long ones cut.
func sample(text []byte) []string {
	text = text[:min(len(text), sampleBytes)]
	var lines []string
	for len(text) > 0 && len(lines) < sampleLines {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		line = bytes.TrimRight(line[:min(len(line), sampleWidth)], " \t\r")
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
	}
	return lines
}
