package collectors

import (
	"bytes"
	"context"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// toolsFile holds the versions of the programs that read this node.
const toolsFile = "tool-versions.txt"

// tool is a program whose version matters for what it printed.
type tool struct {
	name, option string
	// parts must be there before the program is asked: some open a connection to the kernel even to tell
	// their version, which loads what it connects to.
	parts []string
}

var tools = []tool{
	{name: "iptables-save", option: "-V"},
	{name: "iptables-nft-save", option: "-V"},
	{name: "ip6tables-nft-save", option: "-V"},
	{name: "iptables-legacy-save", option: "-V"},
	{name: "ip6tables-legacy-save", option: "-V"},
	{name: "nft", option: "-v", parts: []string{"nfnetlink"}},
	{name: "ipset", option: "-v", parts: []string{"nfnetlink", "ip_set"}},
	{name: "conntrack", option: "-V", parts: []string{"nfnetlink"}},
}

// readTools asks the programs that are installed for their versions, a line each.
func readTools(ctx context.Context, p *place) []snapshot.Evidence {
	var b bytes.Buffer
	var silent []string
	for _, t := range tools {
		path, err := lookCommand(t.name)
		if err != nil {
			continue
		}
		there := true
		for _, part := range t.parts {
			there = there && p.kernel.has(part)
		}
		if !there {
			silent = append(silent, t.name)
			continue
		}
		said, err := p.run(ctx, path, t.option)
		line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		if err != nil || line == "" {
			silent = append(silent, t.name)
			continue
		}
		b.WriteString(line + "\n")
	}
	file := p.dir + toolsFile
	var e snapshot.Evidence
	if b.Len() == 0 && len(silent) == 0 {
		return []snapshot.Evidence{absent(file, snapshot.ToolVersions, "none of the programs that read rules is installed")}
	}
	e = evidence(file, snapshot.ToolVersions, b.Bytes())
	if len(silent) > 0 {
		e.Note = "installed, version not asked or not told: " + strings.Join(silent, ", ")
	}
	return []snapshot.Evidence{e}
}
