package traits

import "strings"

// refusedBy says why a list or watch failed, and which server could not be reached, if that is why: client-go then
// quotes the request, `Get "https://192.0.2.1:6443/api/v1/services": dial tcp …`.
func refusedBy(e entry) (server, reason string) {
	text := e.value("err")
	if text == "" {
		text = e.all
	}
	text, _, _ = strings.Cut(text, "\n")
	for _, verb := range [...]string{"Get ", "Post "} {
		_, rest, ok := strings.Cut(text, verb)
		if !ok {
			continue
		}
		rest = strings.TrimLeft(rest, `\"`)
		if !strings.HasPrefix(rest, "http") {
			continue
		}
		at := strings.Index(rest, "://")
		if at < 0 {
			continue
		}
		authority := at + len("://")
		end := authority
		for end < len(rest) && strings.IndexByte("/ \"\\?", rest[end]) < 0 {
			end++
		}
		// The quotation of the address ends with a quote, or (before Go 1.14) with a colon and a blank.
		_, reason, _ = strings.Cut(rest[end:], ": ")
		return rest[:end], strings.TrimSpace(reason)
	}
	for _, before := range [...]string{"failed to list ", "Failed to list ", "Failed to watch ", "failed to watch "} {
		if _, rest, ok := strings.Cut(text, before); ok {
			_, reason, _ = strings.Cut(rest, ": ")
			return "", strings.TrimSpace(reason)
		}
	}
	return "", ""
}

// toolOf finds the words of iptables-restore or nft in what is logged of a sync that failed, and the family that was
// synced: both where they say so.
func toolOf(text string) (family, reason string) {
	for _, f := range [...]string{"IPv4", "IPv6"} {
		if strings.Contains(text, `ipFamily="`+f+`"`) {
			family = f
		}
	}
	if said := (entry{all: text}).value("err"); said != "" && said[0] != '<' {
		text = said
	}
	for line := range strings.Lines(text) {
		for _, tool := range [...]string{"ip6tables-restore", "iptables-restore", "ip6tables-nft-restore", "iptables-nft-restore"} {
			// "… v1.8.3 (legacy): Couldn't load target": the tool itself, not the name in kube-proxy's own words.
			i := strings.Index(line, tool+" v")
			if i < 0 {
				i = strings.Index(line, tool+": ")
			}
			if i < 0 || strings.HasSuffix(line[:i], "execute ") {
				continue
			}
			if family = "IPv4"; strings.HasPrefix(tool, "ip6") {
				family = "IPv6"
			}
			return family, strings.TrimSpace(line[i:])
		}
	}
	for line := range strings.Lines(text) {
		if i := strings.Index(line, "Error: "); i >= 0 {
			return family, "nft: " + strings.TrimSpace(line[i+len("Error: "):])
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	if i := strings.Index(first, "exit status "); i >= 0 {
		return family, strings.TrimSpace(first[i:])
	}
	return family, ""
}
