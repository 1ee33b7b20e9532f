package collectors

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

const (
	// nftFile holds the tables of nf_tables that are not iptables' own, as the kernel's messages.
	nftFile = "nft.nl"
	// nftJSONFile holds them as nft prints them, where the kernel's messages could not be had.
	nftJSONFile = "nft.json"
)

// readNFT reads tables that iptables-nft does not know of: those of kube-proxy's nftables mode, firewalls, others.
// Tables of iptables-nft are left to iptables-nft-save, but for those in which nft wrote rules too.
func readNFT(ctx context.Context, p *place) []snapshot.Evidence {
	return p.nftEvidence(ctx, p.dumpTables)
}

// nftEvidence reads the tables by dump, and where that cannot be done in a way that nft may know of, by nft.
func (p *place) nftEvidence(
	ctx context.Context, dump func(context.Context, *nfnetlink, []nftTable, uint32) ([]byte, error),
) []snapshot.Evidence {
	data, err := p.readTables(ctx, func(c *nfnetlink, tables []nftTable, generation uint32) ([]byte, error) {
		return dump(ctx, c, tables, generation)
	})
	e := outcome(p.dir+nftFile, snapshot.NFTNetlink, "nft", data, err)
	if !anotherMayAnswer(err) {
		return []snapshot.Evidence{e}
	}
	// The kernel refused something that this program asks, and that nft perhaps asks otherwise.
	text, failed := p.readTables(ctx, func(_ *nfnetlink, tables []nftTable, _ uint32) ([]byte, error) {
		path, err := lookCommand("nft")
		if err != nil {
			return nil, err
		}
		return p.listTables(ctx, path, tables)
	})
	if failed != nil {
		return []snapshot.Evidence{e}
	}
	second := evidence(p.dir+nftJSONFile, snapshot.NFTJSON, text)
	second.Note = "as nft prints it, because its netlink messages could not be read: " + err.Error()
	return []snapshot.Evidence{second}
}

// anotherMayAnswer tells errors that are about how the kernel was asked, and not about whether it can be.
func anotherMayAnswer(err error) bool {
	var (
		unseen  noSubsystem
		none    nothingThere
		changed inconsistent
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, fs.ErrPermission):
		return false
	}
	return !errors.As(err, &unseen) && !errors.As(err, &none) && !errors.As(err, &changed)
}

// readTables reads those tables at one moment: the ruleset has the same generation before and after.
func (p *place) readTables(
	ctx context.Context, read func(c *nfnetlink, tables []nftTable, generation uint32) ([]byte, error),
) ([]byte, error) {
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
		a.before = fmt.Sprint(begun)
		a.data, err = read(c, tables, begun)
		var gone notInstalled
		if errors.As(err, &gone) {
			return a, fmt.Errorf("the tables %s are there, and %w", quoted(tables), err)
		}
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
		if slices.Contains(p.without, t.name) {
			continue
		}
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

// nftCapture is a file of netlink messages while it is written (its form: collectors/snapshot/netlink.go).
type nftCapture struct {
	data []byte
	c    *nfnetlink
}

// dumpTables writes down what nf_tables holds of the tables, as the messages in which the kernel says it. What names
// the asker in a message, its sequence number and port, is zero. Interfaces are named, because rules know them by
// number.
func (p *place) dumpTables(ctx context.Context, c *nfnetlink, tables []nftTable, generation uint32) ([]byte, error) {
	w := &nftCapture{c: c}
	order := "little-endian"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = "big-endian"
	}
	w.data = fmt.Appendf(w.data, "%s\nbyte-order %s\ngeneration %d\n", snapshot.NetlinkMagic, order, generation)
	links, err := linkList(ctx)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the interfaces that rules may name: %w", err)
	}
	for _, l := range links {
		w.data = fmt.Appendf(w.data, "interface %d %s\n", l.index, l.name)
	}
	w.data = append(w.data, '\n')

	wanted := func(family byte, name string) bool { return slices.Contains(tables, nftTable{family, name}) }
	//nolint:unparam // each kind of message has a constant of its own for this, and all are 1
	all := func(name uint16) func(byte, []byte) bool {
		return func(family byte, attrs []byte) bool { return wanted(family, textAt(attrs, name)) }
	}
	if err := w.list(unix.NFT_MSG_GETTABLE, unix.AF_UNSPEC, nil, nil, all(unix.NFTA_TABLE_NAME)); err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	if err := w.list(unix.NFT_MSG_GETCHAIN, unix.AF_UNSPEC, nil, nil, all(unix.NFTA_CHAIN_TABLE)); err != nil {
		return nil, fmt.Errorf("list the chains: %w", err)
	}
	for _, t := range tables {
		if err := w.rules(ctx, t); err != nil {
			return nil, fmt.Errorf("list the rules of table %s %q: %w", nftFamilies[t.family], t.name, err)
		}
	}
	var sets []nftSet
	keepSet := func(family byte, attrs []byte) bool {
		s := setOf(family, attrs)
		if !wanted(family, s.table.name) {
			return false
		}
		sets = append(sets, s)
		return true
	}
	if err := w.list(unix.NFT_MSG_GETSET, unix.AF_UNSPEC, nil, func() { sets = nil }, keepSet); err != nil {
		return nil, fmt.Errorf("list the sets: %w", err)
	}
	if err := w.elements(ctx, sets); err != nil {
		return nil, err
	}
	if err := w.list(unix.NFT_MSG_GETOBJ, unix.AF_UNSPEC, nil, nil, all(unix.NFTA_OBJ_TABLE)); err != nil {
		return nil, fmt.Errorf("list the objects: %w", err)
	}
	if err := w.list(unix.NFT_MSG_GETFLOWTABLE, unix.AF_UNSPEC, nil, nil, all(nftaFlowtableTable)); err != nil {
		return nil, fmt.Errorf("list the flowtables: %w", err)
	}
	// The end mark.
	err = c.ask(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, false, nil, func(family byte, attrs []byte) {
		w.message(unix.NFT_MSG_NEWGEN, family, attrs)
	})
	return w.data, err
}

// nftaFlowtableTable is NFTA_FLOWTABLE_TABLE, which package unix does not have.
const nftaFlowtableTable = 1

// rules writes the rules of a table. All of them are asked for at once: the kernel passes over those that it has told
// already each time that its buffer was full, which costs less than a request for every chain as long as there are
// not some hundred thousand of them.
func (w *nftCapture) rules(ctx context.Context, t nftTable) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return w.list(unix.NFT_MSG_GETRULE, t.family, attribute(nil, unix.NFTA_RULE_TABLE, append([]byte(t.name), 0)...), nil, nil)
}

// list asks for a list and writes those of it that keep says, all if it is nil. It begins again where the list changed
// meanwhile.
func (w *nftCapture) list(message int, family byte, attrs []byte, begin func(), keep func(family byte, attrs []byte) bool) error {
	from := len(w.data)
	return w.c.dump(message, family, attrs, func() {
		w.data = w.data[:from]
		if begin != nil {
			begin()
		}
	}, func(family byte, attrs []byte) {
		if keep == nil || keep(family, attrs) {
			// What is asked with one number is answered with the one before (enum nf_tables_msg_types).
			w.message(message-1, family, attrs)
		}
	})
}

// message writes a message.
func (w *nftCapture) message(kind int, family byte, attrs []byte) {
	w.data = binary.NativeEndian.AppendUint32(w.data, uint32(nlHeader+genHeader+len(attrs)))
	w.data = binary.NativeEndian.AppendUint16(w.data, uint16(unix.NFNL_SUBSYS_NFTABLES<<8|kind))
	w.data = append(w.data, make([]byte, nlHeader-6)...)
	w.data = append(w.data, family, 0, 0, 0)
	w.data = append(w.data, attrs...)
	w.data = append(w.data, make([]byte, -len(attrs)&3)...)
}

// textAt is an attribute that is a name.
func textAt(data []byte, attr uint16) (text string) {
	attributes(data, func(kind uint16, value []byte) {
		if kind == attr {
			text = cString(value)
		}
	})
	return text
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
