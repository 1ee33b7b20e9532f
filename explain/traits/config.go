package traits

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxConfig is the size in bytes above which a configuration is not read: the API server takes no object
// larger than this either.
const maxConfig = 1 << 20

// document is one YAML or JSON document as plain data.
type document struct {
	fields map[string]any
	src    Source // the text of this document alone
}

// readDocuments reads the documents of a file. ConfigMaps are opened: their values are documents of their own.
func readDocuments(src Source) ([]document, error) {
	if len(src.Text) > maxConfig {
		return nil, fmt.Errorf("read configuration: %d bytes is more than the %d that are read", len(src.Text), maxConfig)
	}
	var docs []document
	for _, part := range splitDocuments(src) {
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(part.Text), &fields); err != nil {
			return docs, fmt.Errorf("read configuration: %w", err)
		}
		if fields["kind"] != "ConfigMap" {
			docs = append(docs, document{fields, part})
			continue
		}
		data, _ := fields["data"].(map[string]any)
		for _, key := range [...]string{"config.conf", "ClusterConfiguration"} {
			text, ok := data[key].(string)
			if !ok {
				continue
			}
			var inner map[string]any
			if err := yaml.Unmarshal([]byte(text), &inner); err != nil {
				return docs, fmt.Errorf("read key %s of the ConfigMap: %w", key, err)
			}
			// Lines are those of the ConfigMap, where the value stands indented.
			docs = append(docs, document{inner, part})
		}
	}
	return docs, nil
}

// splitDocuments splits at the lines "---".
func splitDocuments(src Source) []Source {
	var parts []Source
	start, first := 0, max(src.Line, 1)
	text := strings.TrimPrefix(src.Text, "\ufeff")
	at, n := 0, first
	end := func(to int) {
		if strings.TrimSpace(text[start:to]) != "" {
			parts = append(parts, Source{File: src.File, Line: first, Text: text[start:to]})
		}
	}
	for line := range strings.Lines(text) {
		next := at + len(line)
		if strings.TrimRight(line, " \t\r\n") == "---" {
			end(at)
			start, first = next, n+1
		}
		at, n = next, n+1
	}
	end(len(text))
	return parts
}

// text returns the string at a path of fields, "" when there is none.
func (d document) text(path ...string) string {
	s, _ := d.get(path...).(string)
	return s
}

// get returns the value at a path of fields, nil when there is none.
func (d document) get(path ...string) any {
	var v any = d.fields
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// has tells a field that is there from one that is not, whatever its value.
func (d document) has(path ...string) bool {
	parent, _ := d.get(path[:len(path)-1]...).(map[string]any)
	_, ok := parent[path[len(path)-1]]
	return ok
}

// at is the evidence for a field: its line in YAML, the field alone where the document is one line of JSON.
// A field that is not in the text (a default) has the first line of the document and no text.
func (d document) at(path ...string) Fact {
	f := Fact{File: d.src.File, Line: max(d.src.Line, 1)}
	value := d.get(path...)
	key := path[len(path)-1]
	step := 0
	d.src.lines(func(n int, line string) bool {
		for step < len(path) {
			i := fieldIndex(line, path[step])
			if i < 0 {
				return true
			}
			line, f.Line = line[i:], n
			step++
		}
		f.Text = strings.TrimSpace(line)
		return false
	})
	if step < len(path) {
		f.Line, f.Text = max(d.src.Line, 1), ""
		return f
	}
	if strings.HasPrefix(f.Text, `"`) {
		if b, err := json.Marshal(value); err == nil {
			f.Text = strconv.Quote(key) + ":" + string(b)
		}
	}
	return f
}

// fieldIndex is where a field begins in a line of YAML or JSON, -1 when it does not.
func fieldIndex(line, name string) int {
	if i := strings.Index(line, `"`+name+`":`); i >= 0 {
		return i
	}
	for from := 0; ; {
		i := strings.Index(line[from:], name+":")
		if i < 0 {
			return -1
		}
		i += from
		if i == 0 || strings.IndexByte(" \t{,", line[i-1]) >= 0 {
			return i
		}
		from = i + len(name)
	}
}

// readConfig claims what a KubeProxyConfiguration says. complete is true for /configz, which prints every
// field with its default.
func (l *ledger) readConfig(src Source, r rank) error {
	docs, err := readDocuments(src)
	for _, d := range docs {
		if kind := d.text("kind"); kind == "KubeProxyConfiguration" || kind == "" && looksLikeProxyConfig(d) {
			l.claimConfig(d, r)
		}
	}
	return err
}

// looksLikeProxyConfig tells a fragment of a configuration without its kind.
func looksLikeProxyConfig(d document) bool {
	n := 0
	for _, f := range [...]string{"clusterCIDR", "conntrack", "detectLocalMode", "hostnameOverride", "iptables", "ipvs", "mode"} {
		if d.has(f) {
			n++
		}
	}
	return n >= 2
}

func (l *ledger) claimConfig(d document, r rank) {
	claim := func(key, trait, value string, path ...string) {
		f := d.at(path...)
		f.Name, f.Value = trait, value
		l.add(key, r, f)
	}
	if mode := d.text("mode"); mode != "" {
		claim("mode", "mode", mode, "mode")
	} else {
		l.claimDefault("mode", modeIPTables, d.at("mode"), "mode is empty: kube-proxy's default")
	}
	if name := d.text("hostnameOverride"); name != "" {
		claim("nodeName", "nodeName", nodeName(name), "hostnameOverride")
	}
	// Each mode has a section of its own; IPVS mode reads that of iptables.
	for _, section := range [...]string{modeIPTables, modeNFTables} {
		suffix := ""
		if section == modeNFTables {
			suffix = "/nftables"
		}
		if all, ok := d.get(section, "masqueradeAll").(bool); ok {
			claim("masqueradeAll"+suffix, "masqueradeAll", strconv.FormatBool(all), section, "masqueradeAll")
		}
		if bit, ok := d.get(section, "masqueradeBit").(float64); ok && bit >= 0 && bit < 32 {
			claim("masqueradeMark"+suffix, "masqueradeMark", markText(1<<uint(bit)), section, "masqueradeBit")
		}
	}
	for _, section := range [...]string{modeIPTables, modeIPVS, modeNFTables} {
		if period := d.text(section, "syncPeriod"); period != "" {
			claim("syncPeriod/"+section, "syncPeriod", period, section, "syncPeriod")
		}
	}
	if scheduler := d.text(modeIPVS, "scheduler"); scheduler != "" {
		claim("scheduler", "scheduler", scheduler, modeIPVS, "scheduler")
	}
	if ranges := textList(d.get(modeIPVS, "excludeCIDRs")); len(ranges) > 0 {
		claim("excludeCIDRs", "excludeCIDRs", strings.Join(ranges, ","), modeIPVS, "excludeCIDRs")
	}
	if on, ok := d.get(modeIPTables, "localhostNodePorts").(bool); ok {
		claim("localhostNodePorts", "localhostNodePorts", strconv.FormatBool(on), modeIPTables, "localhostNodePorts")
	}
	if d.has("nodePortAddresses") {
		l.claimNodePortAddresses(textList(d.get("nodePortAddresses")), r, d.at("nodePortAddresses"))
	}
	l.claimDetector(detector{
		mode: d.text("detectLocalMode"), cidrs: d.text("clusterCIDR"),
		bridge: d.text("detectLocal", "bridgeInterface"), prefix: d.text("detectLocal", "interfaceNamePrefix"),
		complete: true,
		at: func(trait string) Fact {
			switch trait {
			case "localMode":
				if d.text("detectLocalMode") == "" || d.text("detectLocalMode") == "ClusterCIDR" {
					return d.at("clusterCIDR")
				}
				return d.at("detectLocalMode")
			case "localInterface":
				if d.text("detectLocalMode") == "BridgeInterface" {
					return d.at("detectLocal", "bridgeInterface")
				}
				return d.at("detectLocal", "interfaceNamePrefix")
			default:
				return d.at(trait)
			}
		},
	}, r)
}

// readConfigz claims what /configz says, and what its shape says of the version.
func (l *ledger) readConfigz(src Source, live *span) error {
	if len(src.Text) > maxConfig {
		return fmt.Errorf("read /configz: %d bytes is more than the %d that are read", len(src.Text), maxConfig)
	}
	var outer map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(src.Text, "\ufeff")), &outer); err != nil {
		return fmt.Errorf("read /configz: %w", err)
	}
	inner, ok := outer["kubeproxy.config.k8s.io"].(map[string]any)
	if !ok {
		if published(outer)["iptables"] == nil {
			return fmt.Errorf("read /configz: no kubeproxy.config.k8s.io in it: not kube-proxy's answer")
		}
		inner = outer
	}
	d := document{published(inner), src}
	l.claimConfig(d, asked)
	for _, path := range [...][]string{
		{"bindAddressHardFail"}, {"detectLocal"}, {"iptables", "localhostNodePorts"}, {"kind"}, {"logging"},
		{"nftables"}, {"udpIdleTimeout"},
	} {
		sign, f := strings.Join(path, "."), Fact{File: src.File, Line: max(src.Line, 1)}
		if d.has(path...) {
			f.Text = strconv.Quote(path[len(path)-1])
		} else {
			sign = "no " + sign
		}
		if t, ok := tellOf(configzTells, sign); ok {
			f.Note = "by a field of the answer: " + sign
			live.narrow(t, f)
		}
	}
	return nil
}

// readKubeadm claims the ranges that kubeadm's ClusterConfiguration gives the cluster.
func (l *ledger) readKubeadm(src Source) error {
	docs, err := readDocuments(src)
	for _, d := range docs {
		if kind := d.text("kind"); kind != "ClusterConfiguration" && kind != "" {
			continue
		}
		if s := d.text("networking", "serviceSubnet"); s != "" {
			l.claimRanges("serviceCIDR", s, clusterWide, d.at("networking", "serviceSubnet"))
		}
		if s := d.text("networking", "podSubnet"); s != "" {
			l.claimRanges("podCIDR", s, clusterWide, d.at("networking", "podSubnet"))
		}
	}
	return err
}
