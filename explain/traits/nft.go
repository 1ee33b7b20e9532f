package traits

import (
	"regexp"
	"strings"
)

var (
	nftTextTable = regexp.MustCompile(`(?m)^\s*table ip6? kube-proxy \{`)
	nftJSONTable = regexp.MustCompile(`"table"\s*:\s*\{[^{}]*\}`)
	nftFamily    = regexp.MustCompile(`"family"\s*:\s*"ip6?"`)
	nftName      = regexp.MustCompile(`"name"\s*:\s*"kube-proxy"`)
)

// readNFT looks for the tables of nftables mode in `nft list ruleset`, as text ("table ip kube-proxy {") or
// JSON. They are a strong sign: kube-proxy deletes them when it starts in another mode (1.30+).
func readNFT(src Source) (modeSign, bool) {
	at := nftTextTable.FindStringIndex(src.Text)
	for i := 0; at == nil; {
		m := nftJSONTable.FindStringIndex(src.Text[i:])
		if m == nil {
			return modeSign{}, false
		}
		object := src.Text[i+m[0] : i+m[1]]
		if nftFamily.MatchString(object) && nftName.MatchString(object) {
			at = []int{i + m[0], i + m[1]}
		}
		i += m[1]
	}
	text := strings.TrimSpace(src.Text[at[0]:at[1]])
	line := max(src.Line, 1) + strings.Count(src.Text[:at[1]-len(text)], "\n")
	return modeSign{mode: modeNFTables, strong: true, Fact: Fact{Name: "mode", Value: modeNFTables, File: src.File, Line: line, Text: text}}, true
}
