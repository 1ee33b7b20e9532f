package explain

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

var nftTableLine = regexp.MustCompile(`(?m)^table (\w+) (\S+) \{`)

// foreignTables names the tables of an nft capture that iptables-nft does not keep, as "inet firewalld": the
// others are read from iptables-save.
func foreignTables(e *snapshot.Evidence) []string {
	var out []string
	add := func(family, name string) {
		ours := (family == "ip" || family == "ip6") && slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, name)
		if text := family + " " + name; !ours && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if e.Format == snapshot.NFTText {
		for _, m := range nftTableLine.FindAllStringSubmatch(string(e.Data), -1) {
			add(m[1], strings.Trim(m[2], `"`))
		}
		return out
	}
	var doc struct {
		NFTables []struct {
			Table *struct{ Family, Name string }
		}
	}
	if json.Unmarshal(e.Data, &doc) == nil {
		for _, o := range doc.NFTables {
			if o.Table != nil {
				add(o.Table.Family, o.Table.Name)
			}
		}
	}
	return out
}
