package traits

import "strings"

// readCilium looks for Cilium taking over from kube-proxy: the line "KubeProxyReplacement: True" of `cilium status`
// (up to 1.13 also Strict, Partial and Probe), or "kube-proxy-replacement: true" of its configuration.
func readCilium(src Source) (Fact, bool) {
	var f Fact
	src.lines(func(n int, line string) bool {
		key, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || key != "KubeProxyReplacement" && key != "kube-proxy-replacement" {
			return true
		}
		value, _, _ := strings.Cut(strings.Trim(strings.TrimSpace(rest), `"'`), " ")
		switch strings.ToLower(value) {
		case "true", "strict", "partial", "probe":
			f = Fact{Name: "Cilium", Value: key + ": " + value, File: src.File, Line: n, Text: clip(strings.TrimSpace(line))}
		}
		return false
	})
	return f, f.Name != ""
}

// readCalicoBPF takes a dump of Calico's service maps for what it is: they exist where its eBPF dataplane serves.
func readCalicoBPF(src Source) (Fact, bool) {
	var f Fact
	src.lines(func(n int, line string) bool {
		// "10.96.0.1 port 443 proto 6 id 4 count 1 local 0"
		words := strings.Fields(line)
		if len(words) < 9 || words[1] != "port" || words[3] != "proto" || words[5] != "id" {
			return true
		}
		f = Fact{Name: "Calico", Value: "eBPF dataplane", File: src.File, Line: n, Text: clip(line)}
		return false
	})
	return f, f.Name != ""
}

// readOthers finds the other programs that serve Services.
func (d *deriver) readOthers() {
	for _, src := range d.in.Cilium {
		if f, ok := readCilium(src); ok {
			d.proxy.Others = append(d.proxy.Others, f)
		}
	}
	for _, src := range d.in.CalicoBPF {
		if f, ok := readCalicoBPF(src); ok {
			d.proxy.Others = append(d.proxy.Others, f)
		}
	}
}
