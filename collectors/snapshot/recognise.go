package snapshot

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Recognise tells what data is. Content decides; name, the file's name or "-", only helps where content
// leaves something open: which of iptables and ip6tables, which backend, which program wrote a log.
//
// Family is 4 or 6, or 0 when neither content nor name tell or data holds both. Backend is "legacy" or
// "nft" for iptables captures, or empty. Note is a remark on evidence that was recognised (a conversion),
// or for Unrecognised the reason in words that can follow "not recognised: ".
func Recognise(name string, data []byte) (format Format, family int, backend string, note string) {
	if isNetlink(data) {
		return NFTNetlink, 0, "", ""
	}
	text, note, err := decodeText(data)
	if err != nil {
		return Unrecognised, 0, "", err.Error()
	}
	k := recogniseText(name, text)
	if k.format == Unrecognised {
		return Unrecognised, 0, "", k.reason
	}
	return k.format, k.family, k.backend, note
}

// kind is the answer of the recogniser; reason is set when format is Unrecognised.
type kind struct {
	format  Format
	family  int
	backend string
	reason  string
}

func unknown(reason string) kind { return kind{reason: reason} }

func recogniseText(name string, text []byte) kind {
	body := bytes.TrimSpace(text)
	if len(body) == 0 {
		return unknown("the file is empty")
	}
	lines := sample(text)
	k, ok := recogniseJSON(name, body)
	if !ok {
		k, ok = recogniseYAML(lines)
	}
	if !ok {
		k = recogniseLines(name, text, lines)
	}
	switch k.format {
	case IPTablesSave, IPTablesRules, IPTablesList:
		k.family = familyOfRules(name, lines)
		k.backend = backendOfRules(name, lines)
	case IPAddr, IPRoute, IPRule:
		k.family = familyOfAddresses(name, text)
	}
	return k
}

// A tell says by one line alone that text is of a format. The line comes without its line end but with
// its indentation.
type tell struct {
	format Format
	says   func(line string) bool
}

// tells is the table of all line formats. The first that fits names the line, so that the stricter ones
// stand first; each list stands in the file of its family of commands.
var tells = slices.Concat(iptablesTells, laterTells, kernelTells, iprouteTells, kubernetesTells, listTells)

// recogniseLines lets every line of the sample vote.
func recogniseLines(name string, text []byte, lines []string) kind {
	if k, ok := recogniseOneLiner(name, lines); ok {
		return k
	}
	var (
		votes = map[Format]int{}
		order []Format // by first vote, so that ties have one answer
		total int
	)
	for _, line := range lines {
		if isPrompt(line) || isFiller(line) {
			continue
		}
		f := formatOfLine(line)
		switch {
		case f != Unrecognised:
			if votes[f] == 0 {
				order = append(order, f)
			}
			votes[f]++
			total++
		case line[0] != ' ' && line[0] != '\t':
			total++ // an indented line may continue the one before: it speaks neither for nor against
		}
	}
	if strings.HasPrefix(lines[0], "#!") {
		return unknown("a script, not the output of a command")
	}
	if k, ok := recogniseUseless(lines); ok {
		return k
	}
	votes = foldVotes(votes)
	var best Format
	for _, f := range order {
		if votes[f] > votes[best] {
			best = f
		}
	}
	needed := total / 2
	if best == ProxyLog {
		needed = total / 5 // logs carry stack traces and the output of commands that went wrong
	}
	if best == Unrecognised || votes[best] < max(1, needed) && formatOfName(name) != best {
		return unknown(fmt.Sprintf("no command or object that is known prints text that begins with %q", cut(lines[0], 60)))
	}
	switch best {
	case ProxyLog:
		return whoseLog(name, lines)
	case ProxyArgs:
		return whoseFlags(name, lines)
	case ProxyMetrics:
		return whoseMetrics(text)
	case Sysctl:
		return whoseSysctls(name)
	}
	return kind{format: best}
}

func formatOfLine(line string) Format {
	for _, t := range tells {
		if t.says(line) {
			return t.format
		}
	}
	return Unrecognised
}

// foldVotes settles formats that share most of their lines: one address line makes `ip link` an `ip addr`,
// one table line makes bare rules a save file.
func foldVotes(votes map[Format]int) map[Format]int {
	fold := func(into, from Format) {
		if votes[into] > 0 {
			votes[into] += votes[from]
			votes[from] = 0
		}
	}
	fold(IPAddr, IPLink)
	fold(IPTablesSave, IPTablesRules)
	fold(IPVSConns, IPVSList)
	fold(IPSetList, IPSetSave)
	return votes
}

// isFiller tells lines that people and shells put into pastes: comments and "..." for what was left out.
// The comments that iptables-save writes are no filler: they are tells.
func isFiller(line string) bool {
	t := strings.TrimSpace(line)
	return t == "..." || t == "…" || t == "```" || strings.HasPrefix(t, "#") && !isSaveComment(t) && !strings.HasPrefix(t, "# HELP ") && !strings.HasPrefix(t, "# TYPE ")
}

// recogniseUseless names outputs that people hand in often and that hold too little to work with, so that
// the answer is the command that helps.
func recogniseUseless(lines []string) (kind, bool) {
	for _, u := range []struct{ starts, reason string }{
		{"Kernel IP routing table", "output of `route`: capture `ip route show table all` instead"},
		{"Kernel IPv6 routing table", "output of `route`: capture `ip -6 route show table all` instead"},
		{"Active Internet connections", "output of netstat: capture `ss -lntup` instead"},
		{"# Generated by ebtables-save", "ebtables rules: they do not see routed traffic and are not evaluated"},
		{"# Generated by arptables-save", "arptables rules: they filter ARP and are not evaluated"},
		{"Bridge table: ", "ebtables rules: they do not see routed traffic and are not evaluated"},
		{"error: ", "an error message of kubectl, not an object"},
		{"Error from server", "an error message of kubectl, not an object"},
		{"The connection to the server ", "an error message of kubectl, not an object"},
		{"diff --git ", "a patch"},
		{"-----BEGIN ", "a key or a certificate"},
	} {
		if strings.HasPrefix(lines[0], u.starts) {
			return unknown(u.reason), true
		}
	}
	if words := strings.Fields(lines[0]); len(words) > 2 && (words[0] == "NAME" || words[0] == "NAMESPACE") && strings.ToUpper(lines[0]) == lines[0] {
		return unknown("a table of kubectl get: capture it with -o yaml instead"), true
	}
	if strings.HasPrefix(lines[0], "Name:  ") && len(lines) > 2 && strings.HasPrefix(lines[1], "Namespace:  ") {
		return unknown("output of kubectl describe: capture `kubectl get -o yaml` instead"), true
	}
	if strings.Contains(lines[0], ": flags=") && strings.Contains(lines[0], "  mtu ") {
		return unknown("output of ifconfig: capture `ip addr` instead"), true
	}
	if isBriefLink(lines[0]) {
		return unknown("output of ip -br, which leaves out prefixes' owners: capture `ip addr` instead"), true
	}
	return kind{}, false
}

// cut shortens s to n bytes for a message.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
