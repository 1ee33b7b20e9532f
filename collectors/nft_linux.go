package collectors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// nftFile holds the tables of nf_tables that are not iptables' own.
const nftFile = "nft.json"

// readNFT reads tables that iptables-nft does not know of: those of kube-proxy's nftables mode, firewalls, others.
// Tables of iptables-nft are left to iptables-nft-save, but for those in which nft wrote rules too.
func readNFT(ctx context.Context, p *place) []snapshot.Evidence {
	data, err := p.readTablesNFT(ctx)
	return []snapshot.Evidence{outcome(p.dir+nftFile, snapshot.NFTJSON, "nft", data, err)}
}

func (p *place) readTablesNFT(ctx context.Context) ([]byte, error) {
	c, err := p.openNFTables()
	if err != nil {
		return nil, err
	}
	defer c.close()
	return p.patience().atOneMoment(ctx, func() (a attempt, err error) {
		begun, err := c.generation()
		if err != nil {
			return a, err
		}
		tables, err := p.foreignTables(c)
		if err != nil {
			return a, err
		}
		if len(tables) == 0 {
			return a, nothingThere("no table is there but those of iptables")
		}
		path, err := lookCommand("nft")
		if err != nil {
			return a, fmt.Errorf("the tables %s are there, and %w", quoted(tables), err)
		}
		a.before = fmt.Sprint(begun)
		a.data, err = p.listTables(ctx, path, tables)
		ended, failed := c.generation()
		if failed != nil {
			return a, failed
		}
		a.after = fmt.Sprint(ended)
		return a, err
	})
}

// maxMixed bounds the rules of a table of iptables that is read as one of nft too. As JSON 20,000 rules are about
// 15 MB.
const maxMixed = 20000

// foreignTables are the tables that iptables-nft-save does not print, or not as they are.
func (p *place) foreignTables(c *nfnetlink) ([]nftTable, error) {
	tables, err := c.tables()
	if err != nil {
		return nil, err
	}
	var out []nftTable
	for _, t := range tables {
		if t.ofIPTables() != 0 {
			found, err := p.examine(c, t, maxMixed)
			if err != nil {
				return nil, err
			}
			if found.foreign == 0 && len(found.modules) == 0 || found.rules > maxMixed {
				continue
			}
		}
		out = append(out, t)
	}
	return out, nil
}

func quoted(tables []nftTable) string {
	var names []string
	for _, t := range tables {
		names = append(names, fmt.Sprintf("%s %q", nftFamilies[t.family], t.name))
	}
	return strings.Join(names, ", ")
}

// listTables lists tables one after the other, without those of iptables beside them, which may be large, and
// writes what nft says into one document as `nft -j list ruleset` would print it, an object a line.
func (p *place) listTables(ctx context.Context, path string, tables []nftTable) ([]byte, error) {
	var objects []json.RawMessage
	for _, t := range tables {
		// Names are what somebody chose: as a command in JSON no name is taken for a command.
		command, err := json.Marshal(map[string]any{"nftables": []any{
			map[string]any{"list": map[string]any{"table": map[string]string{"family": nftFamilies[t.family], "name": t.name}}},
		}})
		if err != nil {
			return nil, err
		}
		text, err := p.run(ctx, path, "-j", string(command))
		if err != nil {
			return nil, fmt.Errorf("table %s %q: %w", nftFamilies[t.family], t.name, err)
		}
		said, err := objectsOf(text)
		if err != nil {
			return nil, fmt.Errorf("table %s %q: %w", nftFamilies[t.family], t.name, err)
		}
		objects = merge(objects, said)
	}
	var b bytes.Buffer
	b.WriteString(`{"nftables": [`)
	for i, o := range objects {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(o)
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), nil
}

// objectsOf are the objects of what nft printed.
func objectsOf(text []byte) ([]json.RawMessage, error) {
	var objects []json.RawMessage
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var document struct {
			NFTables []json.RawMessage `json:"nftables"`
		}
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("nft's answer is no JSON: %w", err)
		}
		objects = append(objects, document.NFTables...)
	}
}

// merge appends objects. Each answer begins with the version of nft, of which one is enough.
func merge(to, more []json.RawMessage) []json.RawMessage {
	if len(to) > 0 {
		more = slices.DeleteFunc(more, func(o json.RawMessage) bool { return bytes.HasPrefix(o, []byte(`{"metainfo"`)) })
	}
	return append(to, more...)
}
