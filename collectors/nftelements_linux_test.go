package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNFTElements: several sockets read what one reads, in the same order, and in the namespace of their thread.
func TestNFTElements(t *testing.T) {
	needs(t, "nft")
	inNamespace(t, func(t *testing.T, p *place) {
		var b strings.Builder
		var sets []nftSet
		b.WriteString("table inet many {\n")
		for i := range 5*setsAtOnce + 7 {
			name := fmt.Sprintf("s%d", i)
			fmt.Fprintf(&b, "\tset %s {\n\t\ttype inet_service\n\t\telements = { %d, %d }\n\t}\n", name, i+1, i+10000)
			sets = append(sets, nftSet{table: nftTable{unix.NFPROTO_INET, "many"}, name: name})
		}
		b.WriteString("}\n")
		shell(t, "nft -f - <<END\n"+b.String()+"END")
		c, err := p.openNFTables()
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		one, several := nftCapture{c: c}, nftCapture{c: c}
		for _, s := range sets {
			if err := one.elementsOf(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := several.elements(t.Context(), sets); err != nil {
			t.Fatal(err)
		}
		if len(one.data) < len(sets)*nlHeader || !bytes.Equal(one.data, several.data) {
			t.Errorf("%d bytes by several sockets, %d by one", len(several.data), len(one.data))
		}

		gone := nftCapture{c: c}
		sets[len(sets)/2].name = "gone"
		if err := gone.elements(t.Context(), sets); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), `"gone"`) {
			t.Errorf("a set that is gone: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := gone.elements(ended, sets); !errors.Is(err, context.Canceled) || len(gone.data) > 0 {
			t.Errorf("%d bytes after the end: %v", len(gone.data), err)
		}
	})
}
