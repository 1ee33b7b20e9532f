package collectors

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelParts tells which parts of the kernel are there already: loaded as modules, or built in. Finding out
// loads none. That matters because asking a part itself does: the kernel answers a request for a part that it
// lacks by loading the module first. Answers are kept; use it from one goroutine.
type kernelParts struct {
	known map[string]partState
	// loaded and builtin are the names in the lists of modules; nil: not read yet.
	loaded, builtin map[string]bool
	// symbols are the parts whose symbols the running kernel has; nil: not read yet.
	symbols map[string]bool
	// symbolsErr is why the symbols say nothing.
	symbolsErr error
	// root stands before /proc, /sys and /lib; empty but in tests.
	root string
}

type partState struct {
	there bool
	// why is empty for parts that are there; else it says how that is known, or that it is not.
	why   string
	known bool
}

// telltales are symbols that a part has in every kernel since 4.x: exported ones where there are any, because
// the others change from version to version.
var telltales = map[string][]string{
	"nf_tables":            {"nft_register_chain_type"},
	"nft_compat":           {"nft_match_init", "nft_match_large_init", "nft_target_select_ops"},
	"nfnetlink":            {"nfnetlink_subsys_register"},
	"nf_conntrack":         {"nf_conntrack_in"},
	"nf_conntrack_netlink": {"ctnetlink_get_conntrack", "ctnetlink_dump_table"},
	"ip_set":               {"ip_set_type_register"},
	"ip_vs":                {"register_ip_vs_scheduler"},
	"ip_tables":            {"ipt_do_table"},
	"ip6_tables":           {"ip6t_do_table"},
	"xt_comment":           {"comment_mt"},
	"xt_limit":             {"limit_mt"},
	"xt_mark":              {"mark_mt"},
	"xt_NFLOG":             {"nflog_tg"},
	"xt_tcpudp":            {"tcp_mt"},
	"xt_TRACE":             {"trace_tg"},
}

// fixed tells that this kernel loads nothing, whatever is asked: it was built without modules.
func (k *kernelParts) fixed() bool {
	_, err := os.Stat(k.root + "/proc/modules")
	return errors.Is(err, fs.ErrNotExist)
}

// has tells whether a part is there. False also stands for "that cannot be seen": why tells the two apart.
func (k *kernelParts) has(part string) bool { return k.state(part).there }

// why says in words why has was false, and whether that is certain. A part that may be there all the same must
// not be reported as absent.
func (k *kernelParts) why(part string) (reason string, certain bool) {
	s := k.state(part)
	return s.why, s.known
}

func (k *kernelParts) state(part string) partState {
	s, ok := k.known[part]
	if !ok {
		s = k.look(part)
		if k.known == nil {
			k.known = map[string]partState{}
		}
		k.known[part] = s
	}
	return s
}

// look asks the cheap sources first. Modules and built-in parts with parameters have a folder in /sys/module;
// modules.builtin lists built-in parts that could have been modules, where the distribution installs it; symbols
// know the rest.
func (k *kernelParts) look(part string) partState {
	if _, err := os.Stat(k.root + "/sys/module/" + part); err == nil {
		return partState{there: true, known: true}
	}
	if k.loaded == nil {
		k.loaded = moduleNames(k.root + "/proc/modules")
	}
	if k.builtin == nil {
		k.builtin = map[string]bool{}
		if release := kernelRelease(); release != "" {
			k.builtin = moduleNames(k.root + "/lib/modules/" + release + "/modules.builtin")
		}
	}
	if k.loaded[part] || k.builtin[part] {
		return partState{there: true, known: true}
	}
	if k.symbols == nil {
		k.symbols, k.symbolsErr = partsOfSymbols(k.root + "/proc/kallsyms")
	}
	switch {
	case k.symbols[part]:
		return partState{there: true, known: true}
	case k.symbolsErr != nil:
		return partState{why: fmt.Sprintf("whether the kernel has %s cannot be seen: it is not among the modules, and %v", part, k.symbolsErr)}
	case telltales[part] == nil:
		return partState{why: fmt.Sprintf("whether the kernel has %s cannot be seen: it is not among the modules", part)}
	}
	return partState{why: "the kernel has no " + part + " loaded", known: true}
}

// moduleNames reads the first word of each line, as a module's name: "kernel/net/netfilter/nf_tables.ko" and
// "nf_tables 290816 7 - Live 0x0" are both nf_tables. Never nil.
func moduleNames(file string) map[string]bool {
	names := map[string]bool{}
	data, err := os.ReadFile(file)
	if err != nil {
		return names
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		name := words[0]
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			name = name[i+1:]
			name, _, _ = strings.Cut(name, ".ko")
		}
		names[strings.ReplaceAll(name, "-", "_")] = true
	}
	return names
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// partsOfSymbols looks through all symbols of the kernel for the telltales of every part: about 60 ms for
// 120,000 symbols, most of it in the kernel. Addresses do not matter: they are zeros for those who may not see
// them.
func partsOfSymbols(file string) (map[string]bool, error) {
	found := map[string]bool{}
	f, err := os.Open(file)
	if err != nil {
		return found, fmt.Errorf("the kernel's symbols cannot be read: %w", reasonOf(err))
	}
	defer f.Close()
	parts := map[string]string{}
	for part, symbols := range telltales {
		for _, s := range symbols {
			parts[s] = part
		}
	}
	r := bufio.NewReaderSize(f, 256<<10)
	lines := 0
	for {
		line, err := r.ReadSlice('\n')
		if part := parts[string(symbolOf(line))]; part != "" {
			found[part] = true
		}
		if len(line) > 0 {
			lines++
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return found, fmt.Errorf("the kernel's symbols cannot be read: %w", reasonOf(err))
		}
	}
	if lines == 0 {
		return found, errors.New("the kernel shows no symbols")
	}
	return found, nil
}

// symbolOf is the name in "ffffffff81000000 t nft_match_init	[nft_compat]". Compilers may add a suffix, as in
// "ctnetlink_dump_table.constprop.0".
func symbolOf(line []byte) []byte {
	for range 2 {
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			return nil
		}
		line = line[i+1:]
	}
	if i := bytes.IndexAny(line, "\t\n."); i >= 0 {
		line = line[:i]
	}
	return line
}
