package traits

import (
	"maps"
	"slices"
	"strings"
	"unicode"
)

// published turns the answer of /configz into the form of configuration files. Up to 1.35 kube-proxy shows its own
// form there: fields are named as in Go (ClusterCIDR, IPTables), and from 1.31 on some stand elsewhere than in the file
// that it was started with. An answer that is in the form of files already is left as it is.
func published(answer map[string]any) map[string]any {
	if answer["IPTables"] == nil {
		return answer
	}
	out, _ := renamed(answer).(map[string]any)
	linux, _ := out["linux"].(map[string]any)
	move(linux, "conntrack", out)
	move(linux, "oomScoreAdj", out)
	for _, mode := range [...]string{modeIPTables, modeIPVS, modeNFTables} {
		section, ok := out[mode].(map[string]any)
		if !ok {
			continue
		}
		move(linux, "masqueradeAll", section)
		move(out, "syncPeriod", section)
		move(out, "minSyncPeriod", section)
	}
	if detect, ok := out["detectLocal"].(map[string]any); ok {
		if ranges := textList(detect["clusterCIDRs"]); len(ranges) > 0 {
			out["clusterCIDR"] = strings.Join(ranges, ",")
		}
	}
	return out
}

// move puts a field that is there where files have it, unless something stands there.
func move(from map[string]any, name string, to map[string]any) {
	value, ok := from[name]
	if _, taken := to[name]; ok && !taken {
		to[name] = value
	}
}

// renamed gives all fields, at every depth, the names that files have.
func renamed(v any) any {
	fields, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(fields))
	// In order: an answer with a field under both names is read the same way each time.
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out[publishedName(name)] = renamed(fields[name])
	}
	return out
}

// publishedName is a field's name in files: HostnameOverride is hostnameOverride, IPVS ipvs, OOMScoreAdj oomScoreAdj.
func publishedName(name string) string {
	if name == "IPTables" || name == "NFTables" {
		return strings.ToLower(name)
	}
	letters := []rune(name)
	for i := range letters {
		// The last capital of a row begins the next word.
		if i > 0 && i+1 < len(letters) && unicode.IsLower(letters[i+1]) || !unicode.IsUpper(letters[i]) {
			break
		}
		letters[i] = unicode.ToLower(letters[i])
	}
	return string(letters)
}

// textList are the strings of a list.
func textList(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
