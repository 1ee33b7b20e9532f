package collectors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// The kernel keeps rules of iptables in two places, and a node may have rules in both: in tables of nf_tables, and
// behind the old interface. Each has programs of its own.
const (
	backendNFT    = "nft"
	backendLegacy = "legacy"
)

// rulesOf is the rules of one family in one of the two places.
type rulesOf struct {
	family  int
	backend string
}

func (r rulesOf) program() string {
	if r.family == 6 {
		return "ip6tables"
	}
	return "iptables"
}

// what is the subject of messages.
func (r rulesOf) what() string { return r.program() + " (" + r.backend + ")" }

// readIPTables reads the rules of both families in both places.
func readIPTables(ctx context.Context, p *place) []snapshot.Evidence {
	var out []snapshot.Evidence
	for _, r := range []rulesOf{{4, backendNFT}, {6, backendNFT}, {4, backendLegacy}, {6, backendLegacy}} {
		read := p.readRulesNFT
		if r.backend == backendLegacy {
			read = p.readRulesLegacy
		}
		data, err := read(ctx, r)
		out = append(out, p.rulesEvidence(r, data, err))
	}
	return out
}

// nothingThere is the answer that there are no such rules; text says why.
type nothingThere string

func (e nothingThere) Error() string { return string(e) }

// rulesEvidence is what became of one reading.
func (p *place) rulesEvidence(r rulesOf, data []byte, err error) snapshot.Evidence {
	file := p.dir + r.program() + "-" + r.backend + "-save.txt"
	e := outcome(file, snapshot.IPTablesSave, r.what(), data, err)
	if lack := lookOver(e.Data).lack(); lack != "" && e.Status == snapshot.OK {
		e.Status, e.Error = snapshot.Truncated, "read "+r.what()+": "+lack
	}
	e.Family, e.Backend = r.family, r.backend
	return e
}

// outcome is the evidence of a reading: an answer, or why there is none, or data that is not all of it.
func outcome(file string, f snapshot.Format, what string, data []byte, err error) snapshot.Evidence {
	var (
		none    nothingThere
		unseen  noSubsystem
		partly  incomplete
		changed inconsistent
	)
	switch {
	case err == nil:
		return evidence(file, f, data)
	case errors.As(err, &none):
		return absent(file, f, string(none))
	case errors.As(err, &unseen) && unseen.certain:
		return absent(file, f, unseen.reason)
	case errors.As(err, &unseen):
		return missed(file, f, snapshot.NotCollected, fmt.Errorf("read %s: %w", what, err))
	case errors.As(err, &changed):
		// Rules of two moments are rules that no packet met: what is compared with them would be a false alarm.
		return missed(file, f, snapshot.Failed, fmt.Errorf("read %s: %w", what, err))
	case len(data) > 0 && errors.As(err, &partly):
		e := missed(file, f, snapshot.Truncated, fmt.Errorf("read %s: %w", what, err))
		e.Data = data
		return e
	case errors.As(err, &partly):
		return missed(file, f, snapshot.NotCollected, fmt.Errorf("read %s: %w", what, err))
	}
	return couldNot(file, f, what, err)
}

// incomplete is the error of a reading that leaves something out on purpose.
type incomplete string

func (e incomplete) Error() string { return string(e) }

// selfConsistent is the first version of iptables-nft-save that is known to compare generations itself and to
// begin again when rules change.
var selfConsistent = [3]int{1, 8, 9}

// readRulesNFT reads the rules of one family that iptables-nft keeps in nf_tables. One run prints all tables: it
// reads them in one go before it prints the first. Where nft wrote rules into them, each table gets a run of its
// own, so that one that cannot be printed does not cost the others.
func (p *place) readRulesNFT(ctx context.Context, r rulesOf) ([]byte, error) {
	c, err := p.openNFTables()
	if err != nil {
		return nil, err
	}
	defer c.close()
	var left []string
	data, err := p.patience().atOneMoment(ctx, func() (a attempt, err error) {
		left = nil
		begun, err := c.generation()
		if err != nil {
			return a, err
		}
		tables, err := c.tables()
		if err != nil {
			return a, err
		}
		tables = slices.DeleteFunc(tables, func(t nftTable) bool { return t.ofIPTables() != r.family })
		if len(tables) == 0 {
			return a, nothingThere("no table of " + r.program() + "-nft is there")
		}
		path, args, err := p.saveCommand(ctx, r)
		if err != nil {
			return a, err
		}
		a.before = fmt.Sprint(begun)
		a.data, a.sure, left, err = p.saveTables(ctx, c, tables, path, append(args, "-c"))
		ended, failed := c.generation()
		if failed != nil {
			return a, failed
		}
		a.after = fmt.Sprint(ended)
		return a, err
	})
	if err == nil && len(left) > 0 {
		err = incomplete("nft wrote rules into tables of iptables: " + strings.Join(left, "; ") + " (capture `nft -j list ruleset`)")
	}
	return data, err
}

// saveTables runs iptables-nft-save. sure tells that it saw to it that all is of one moment; left says what is
// not printed as it is.
func (p *place) saveTables(ctx context.Context, c *nfnetlink, tables []nftTable, path string, args []string) (data []byte, sure bool, left []string, err error) {
	mixed := false
	found := make([]tableRules, len(tables))
	for i, t := range tables {
		if found[i], err = p.examine(c, t, 0); err != nil {
			return nil, false, nil, err
		}
		mixed = mixed || found[i].foreign > 0 || len(found[i].modules) > 0
	}
	if !mixed {
		data, err = p.run(ctx, path, args...)
		return data, slices.Compare(versionOf(data), selfConsistent[:]) >= 0, nil, err
	}
	for i, t := range tables {
		if modules := found[i].modules; len(modules) > 0 {
			left = append(left, fmt.Sprintf("table %s is left out, because printing it would load %s", t.name, strings.Join(modules, ", ")))
			continue
		}
		text, err := p.run(ctx, path, slices.Concat(args, []string{"-t", t.name})...)
		switch {
		case err != nil && found[i].foreign == 0:
			return nil, false, nil, err
		case err != nil:
			left = append(left, fmt.Sprintf("table %s is left out, because %v", t.name, err))
			continue
		case found[i].foreign > 0 && len(lookOver(text).refused) == 0:
			left = append(left, fmt.Sprintf("table %s has %d of them, which %s does not print as they are", t.name, found[i].foreign, filepath.Base(path)))
		}
		data = append(data, text...)
	}
	return data, false, left, nil
}

// versionOf reads the numbers of "# Generated by iptables-nft-save v1.8.9 (nf_tables) on …"; nil for another
// text.
func versionOf(save []byte) []int {
	_, rest, _ := strings.Cut(string(save[:min(len(save), 100)]), "tables-")
	_, rest, _ = strings.Cut(rest, "save v")
	var version []int
	for _, number := range strings.FieldsFunc(rest[:min(len(rest), strings.IndexByte(rest+" ", ' '))], func(c rune) bool { return c == '.' }) {
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil {
			return version
		}
		version = append(version, n)
	}
	return version
}

// readRulesLegacy reads the rules of one family behind the old interface: only tables that are registered,
// because naming another registers it. The kernel gives out each table as it is at one moment. The largest, nat, is
// read last: where the others were the same before and after that, all of them are of the moment when nat was read.
func (p *place) readRulesLegacy(ctx context.Context, r rulesOf) ([]byte, error) {
	f := legacyFamilies[r.family]
	return p.patience().atOneMoment(ctx, func() (a attempt, err error) {
		tables, err := f.tables()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return a, nothingThere("the kernel has no tables of " + r.program() + "-legacy")
		case err != nil:
			return a, fmt.Errorf("%s: %w", f.names, err)
		case len(tables) == 0:
			return a, nothingThere("no table of " + r.program() + "-legacy is registered")
		}
		others := slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return t == "nat" })
		order := others
		if len(others) < len(tables) {
			order = append(slices.Clone(others), "nat")
		}
		path, args, err := p.saveCommand(ctx, r)
		if err != nil {
			return a, err
		}
		mark := func() (string, error) {
			names, err := f.tables()
			if err != nil {
				return "", err
			}
			rules, err := f.mark(others)
			return strings.Join(names, " ") + "\n" + rules, err
		}
		if a.before, err = mark(); err != nil {
			return a, err
		}
		text := make(map[string][]byte, len(tables))
		for _, t := range order {
			if text[t], err = p.run(ctx, path, slices.Concat(args, []string{"-c", "-t", t})...); err != nil {
				break
			}
		}
		for _, t := range tables {
			if a.data == nil {
				a.data = text[t]
			} else {
				a.data = append(a.data, text[t]...)
			}
		}
		after, failed := mark()
		if failed != nil {
			return a, failed
		}
		a.after = after
		return a, err
	})
}

// saveCommand finds the program that saves such rules: under the name that says which, within the program for
// all of them, or under the plain name, if that is the one. It asks nothing of the kernel.
func (p *place) saveCommand(ctx context.Context, r rulesOf) (path string, args []string, err error) {
	name := r.program() + "-" + r.backend + "-save"
	path, err = lookCommand(name)
	if err == nil {
		return path, nil, nil
	}
	plain := r.program() + "-save"
	if path, lacking := lookCommand("xtables-" + r.backend + "-multi"); lacking == nil {
		return path, []string{plain}, nil
	}
	if path, lacking := lookCommand(plain); lacking == nil && p.backendOf(ctx, path) == r.backend {
		return path, nil, nil
	}
	return "", nil, err
}

// backendOf is where a program called iptables-save looks for rules. Those before 1.8 do not say, and some do not
// know the option: they know one place only.
func (p *place) backendOf(ctx context.Context, path string) string {
	said, err := p.run(ctx, path, "-V")
	if err == nil && strings.Contains(string(said), "nf_tables") {
		return backendNFT
	}
	return backendLegacy
}
