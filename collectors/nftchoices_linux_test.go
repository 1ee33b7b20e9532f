package collectors

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestNFTChoices: what is asked for by its keys is what the kernel lists, and what was guessed wrongly is listed.
func TestNFTChoices(t *testing.T) {
	needs(t, "nft")
	inNamespace(t, func(t *testing.T, p *place) {
		var large []string
		for n := range mostChoices + 1 {
			large = append(large, fmt.Sprintf("%d : goto a", n))
		}
		maps := []struct {
			text    string
			guessed bool
		}{
			{"numgen random mod 3 vmap { 0 : goto a, 1 : goto b, 2 : drop }", true},
			{"numgen inc mod 2 vmap { 0 : jump a, 1 : goto b }", true},
			{"jhash ip saddr mod 2 vmap { 0 : goto a, 1 : goto a }", true},
			{"dnat to numgen random mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }", true},
			{"numgen random mod 1 vmap { 0 : goto b }", true},
			// None is at 0.
			{"numgen random mod 2 offset 5 vmap { 5 : goto a, 6 : goto b }", false},
			// The last is missing, and another takes its room.
			{"numgen random mod 4 vmap { 0 : goto a, 1 : goto b, 3 : drop }", false},
			{"numgen random mod 4 vmap { 0 : goto a, 1 : goto b, * : drop }", false},
			{"numgen random mod 65 vmap { " + strings.Join(large, ", ") + " }", false},
			{"meta mark vmap { 0 : goto a, 1 : goto b }", false},
			{"ip daddr vmap { 10.0.0.1 : goto a }", false},
		}
		var b strings.Builder
		b.WriteString("table ip t {\n\tchain a {\n\t}\n\tchain b {\n\t}\n\tchain c {\n\t\ttype nat hook output priority -100\n")
		for _, m := range maps {
			fmt.Fprintf(&b, "\t\t%s\n", m.text)
		}
		b.WriteString("\t}\n}\n")
		shell(t, "nft -f - <<'END'\n"+b.String()+"END")

		c, err := p.openNFTables()
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		sets := setsOf(t, c)
		if len(sets) != len(maps) {
			t.Fatalf("%d sets of %d maps", len(sets), len(maps))
		}
		t.Run("all", func(t *testing.T) {
			guessed, err := c.choices(sets)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range sets {
				if want := maps[i].guessed; (guessed[i] != nil) != want {
					t.Errorf("%s: guessed %t, want %t", maps[i].text, !want, want)
				}
				if guessed[i] == nil {
					continue
				}
				listed := nftCapture{c: c}
				if err := listed.elementsOf(s); err != nil {
					t.Fatal(err)
				}
				asked := nftCapture{}
				asked.message(unix.NFT_MSG_NEWSETELEM, s.table.family, guessed[i])
				if diff := cmp.Diff(elementsBySet(listed.data), elementsBySet(asked.data)); diff != "" {
					t.Errorf("%s: listed (-), asked for by its keys (+):\n%s", maps[i].text, diff)
				}
			}
			// Nothing of it is left to be taken for an answer to something else.
			if _, err := c.generation(); err != nil {
				t.Error(err)
			}
		})
		t.Run("small buffer", func(t *testing.T) {
			if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
				t.Fatal(err)
			}
			guessed, err := c.choices(sets)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(guessed, func(g []byte) bool { return g == nil }) {
				t.Skip("the kernel kept all answers")
			}
			w := nftCapture{c: c}
			if err := w.block(t.Context(), sets); err != nil {
				t.Fatal(err)
			}
			listed := nftCapture{c: c}
			for _, s := range sets {
				if err := listed.elementsOf(s); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(elementsBySet(listed.data), elementsBySet(w.data)); diff != "" {
				t.Errorf("listed (-), read with too small a buffer (+):\n%s", diff)
			}
		})
	})
}

// setsOf describes the sets of the namespace, in the order in which they were made.
func setsOf(t *testing.T, c *nfnetlink) (sets []nftSet) {
	err := c.dump(unix.NFT_MSG_GETSET, unix.AF_UNSPEC, nil, func() { sets = nil }, func(family byte, attrs []byte) {
		sets = append(sets, setOf(family, attrs))
	})
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// elementsBySet are the elements that some messages tell of, sorted. The kernel ends a list with a message that has none.
func elementsBySet(messages []byte) map[string][]string {
	out := map[string][]string{}
	for len(messages) > 0 {
		size := int(binary.NativeEndian.Uint32(messages))
		attrs := messages[nlHeader+genHeader : size]
		messages = messages[(size+3)&^3:]
		set := textAt(attrs, unix.NFTA_SET_ELEM_LIST_SET)
		attributes(attrs, func(kind uint16, value []byte) {
			if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				return
			}
			attributes(value, func(kind uint16, element []byte) {
				out[set] = append(out[set], fmt.Sprintf("%d %x", kind, element))
			})
		})
	}
	for _, elements := range out {
		slices.Sort(elements)
	}
	return out
}
