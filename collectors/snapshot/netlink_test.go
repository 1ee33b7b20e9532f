package snapshot

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"testing/fstest"
)

// netlinkFile is a file of netlink messages: one about a table, one that ends a list, and the end mark.
func netlinkFile(order binary.ByteOrder) []byte {
	name := "little-endian"
	if order == binary.ByteOrder(binary.BigEndian) {
		name = "big-endian"
	}
	data := []byte(NetlinkMagic + "\nbyte-order " + name + "\ngeneration 7\n\n")
	for _, m := range []struct {
		kind uint16
		body string
	}{{10 << 8, "\x02\x00\x00\x00\x08\x00\x01\x00nat\x00"}, {3, "\x00\x00\x00\x00"}, {10<<8 | 15, "\x00\x00\x00\x07"}} {
		h := make([]byte, 16)
		order.PutUint32(h, uint32(16+len(m.body)))
		order.PutUint16(h[4:], m.kind)
		data = append(append(data, h...), m.body...)
	}
	return data
}

func TestNetlink(t *testing.T) {
	for name, order := range map[string]binary.ByteOrder{"little-endian": binary.LittleEndian, "big-endian": binary.BigEndian} {
		t.Run(name, func(t *testing.T) {
			whole := netlinkFile(order)
			if f, family, backend, note := Recognise("x", whole); f != NFTNetlink || family != 0 || backend != "" || note != "" {
				t.Errorf("recognised as %q %d %q %q", f, family, backend, note)
			}
			want := OK
			if NotEvaluated(NFTNetlink) != "" {
				want = Unsupported
			}
			if e := loadNetlink(t, whole); e.Status != want || !bytes.Equal(e.Data, whole) {
				t.Errorf("%q (%s), %d bytes", e.Status, e.Error, len(e.Data))
			}
			for n := strings.Index(string(whole), "\n\n"); n < len(whole); n++ {
				if netlinkEnds(whole[:n]) {
					t.Errorf("cut behind %d bytes it is taken for whole", n)
				}
			}
			cut := Evidence{File: "nft.nl", Format: NFTNetlink, Status: OK}
			if cut.fill(whole[:len(whole)-20], false, nil, ""); NotEvaluated(NFTNetlink) == "" && cut.Status != Truncated {
				t.Errorf("cut, within a bundle: %q (%s)", cut.Status, cut.Error)
			}
		})
	}
	if isNetlink([]byte("svcnet nf_tables text 1\n")) {
		t.Error("another first line is taken for one of netlink messages")
	}
}

// loadNetlink loads a file by itself, and again out of the bundle of that.
func loadNetlink(t *testing.T, data []byte) Evidence {
	t.Helper()
	s, err := LoadFS(fstest.MapFS{"some/file": {Data: data}}, "x")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Evidence) != 1 {
		t.Fatalf("%d pieces", len(s.Evidence))
	}
	again, err := LoadFS(unpacked(t, bundle(t, s)), "y")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := s.Evidence[0], again.Evidence[0]; a.Format != b.Format || a.Status != b.Status || !bytes.Equal(a.Data, b.Data) {
		t.Errorf("out of a bundle: %q %q, %d bytes; the file: %q %q, %d bytes", b.Format, b.Status, len(b.Data), a.Format, a.Status, len(a.Data))
	}
	return s.Evidence[0]
}
