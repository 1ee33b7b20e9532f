package netfilter

import "strings"

// isPrompt tells whether a line of a paste is a command that was typed: it calls iptables, or it begins like
// the prompt of a shell.
func isPrompt(line string) bool {
	if _, ok := commandHeader(line); ok {
		return true
	}
	line = strings.TrimLeft(line, " \t")
	if strings.HasPrefix(line, "$ ") || line == "$" {
		return true
	}
	// root@node:~# and [root@node ~]$
	first, _, _ := strings.Cut(line, " ")
	return strings.IndexByte(first, '@') > 0 && strings.IndexAny(line, "#$>") > 0
}

// commandHeader reads what a command line that calls iptables says of its output. ok is false for other lines.
func commandHeader(line string) (h header, ok bool) {
	i := strings.Index(line, "tables")
	if i < 0 || len(line) > 1024 {
		return header{}, false
	}
	w := words{s: line}
	for {
		word, more := w.next()
		if !more {
			return header{}, false
		}
		if h, save, ok := program(word[strings.LastIndexAny(word, "/#$>")+1:]); ok {
			return h, h.arguments(&w, save)
		}
		// What stands before the program is a prompt, sudo, kubectl exec …; a rule or a sentence is not.
		if strings.HasPrefix(word, "-A") || strings.HasPrefix(word, ":") && len(word) > 3 {
			return header{}, false
		}
	}
}

// program reads the name of a command.
func program(name string) (h header, save, ok bool) {
	switch {
	case strings.HasPrefix(name, "iptables"):
		h.family, name = IPv4, name[len("iptables"):]
	case strings.HasPrefix(name, "ip6tables"):
		h.family, name = IPv6, name[len("ip6tables"):]
	default:
		return header{}, false, false
	}
	name, save = strings.CutSuffix(name, "-save")
	switch name {
	case "":
	case "-nft":
		h.backend = NFT
	case "-legacy":
		h.backend = Legacy
	default:
		return header{}, false, false
	}
	return h, save, true
}

// arguments reads the options of the command up to a pipe. It answers whether they print rules. Without -t
// iptables prints the filter table; iptables-save prints all, and what grep leaves of them names none.
func (h *header) arguments(w *words, save bool) bool {
	prints := save
	for {
		word, ok := w.next()
		if !ok || word == "|" || word == "&&" || word == ";" || strings.HasPrefix(word, ">") {
			break
		}
		switch {
		case word == "-t", word == "--table":
			h.table, _ = w.next()
		case strings.HasPrefix(word, "--table="):
			h.table = word[len("--table="):]
		case strings.HasPrefix(word, "-t") && len(word) > 2:
			h.table = word[2:]
		case word == "--list", word == "--list-rules":
			prints = true
		case len(word) > 1 && word[0] == '-' && word[1] != '-':
			// Short options may stand together: -nvL, -tnat was above.
			if strings.ContainsAny(word, "LS") {
				prints = true
			}
			if i := strings.IndexByte(word, 't'); i > 0 && i == len(word)-1 {
				h.table, _ = w.next()
			}
		}
	}
	if h.table == "" && !save {
		h.table = "filter"
	}
	return prints
}
