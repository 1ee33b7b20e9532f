package host

import (
	"strings"

	"github.com/svcnet/svcnet/explain/paste"
)

// Offload is one feature of a network interface.
type Offload struct {
	On bool
	// Fixed is true where it cannot be changed.
	Fixed bool
	Evidence
}

// ParseOffloads reads `ethtool -k` of one interface or several into Offloads. A line that cannot be used is a Problem;
// the error is for a text without any feature.
func ParseOffloads(h *Host, text, file string) ([]Problem, error) {
	r := &reading{what: "offload settings (ethtool -k)", file: file}
	dev := ""
	for n, line := range lines(text) {
		r.seen++
		t := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(t, "Features for "); ok {
			dev = strings.TrimSuffix(rest, ":")
			continue
		}
		feature, value, ok := strings.Cut(t, ": ")
		words := strings.Fields(value)
		switch {
		case ok && len(words) > 0 && (words[0] == "on" || words[0] == "off") && dev == "":
			r.skip(n, line, "a feature without the line that names its interface")
			continue
		case ok && len(words) > 0 && (words[0] == "on" || words[0] == "off"):
		case paste.Prompt(line):
			continue
		default:
			r.skip(n, line, "not a feature that is on or off")
			continue
		}
		if h.Offloads == nil {
			h.Offloads = make(map[string]map[string]Offload)
		}
		if h.Offloads[dev] == nil {
			h.Offloads[dev] = make(map[string]Offload)
		}
		h.Offloads[dev][feature] = Offload{On: words[0] == "on", Fixed: strings.Contains(value, "[fixed]"), Evidence: r.at(n, line)}
		r.used++
	}
	return r.result()
}
