package snapshot

import (
	"regexp"
	"strings"
)

var yamlKey = regexp.MustCompile(`^"?[A-Za-z][\w.-]*"?:(\s|$)`)

// recogniseYAML answers for text whose first line is a YAML key and which has the type fields of
// Kubernetes objects at the outermost level. kubectl sorts keys: the kind of a List stands behind all of
// its items, out of sight of the sample, so that "items" must do in its stead.
func recogniseYAML(lines []string) (kind, bool) {
	var (
		best           kind
		found, started bool

		apiVersion, objectKind string
		items                  bool
	)
	end := func() {
		if k, ok := kindOfObject(apiVersion, objectKind, items); ok && (!found || rankOfObject(k) > rankOfObject(best)) {
			best, found = k, true
		}
		apiVersion, objectKind, items = "", "", false
	}
	for _, l := range lines {
		switch {
		case l == "---" || strings.HasPrefix(l, "--- "):
			end()
			continue
		case !started && (l[0] == '#' || l[0] == '%' || isPrompt(l)):
			continue
		case !started && !yamlKey.MatchString(l):
			return kind{}, false
		}
		started = true
		switch key, value, _ := strings.Cut(l, ":"); key {
		case "apiVersion":
			apiVersion = scalar(value)
		case "kind":
			objectKind = scalar(value)
		case "items":
			items = true
		}
	}
	end()
	return best, found
}

// rankOfObject orders what the documents of one file may be: a single object makes it a file of objects,
// and kube-proxy's configuration counts among the other parts of a kubeadm configuration.
func rankOfObject(k kind) int {
	switch k.format {
	case Objects:
		return 3
	case ProxyConfig:
		return 2
	case Unrecognised:
		return 0
	}
	return 1
}

// scalar is the value of a plain or quoted YAML scalar on one line.
func scalar(v string) string {
	v, _, _ = strings.Cut(v, " #")
	return strings.Trim(strings.TrimSpace(v), `"'`)
}
