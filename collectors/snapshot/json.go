package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// jsonShape is what can be seen of a JSON document without reading all of it.
type jsonShape struct {
	list    bool
	keys    []string          // of the top object, or of the first object of a top list
	strings map[string]string // those of their values that are strings
}

func (s jsonShape) has(keys ...string) bool {
	for _, k := range keys {
		if !slices.Contains(s.keys, k) {
			return false
		}
	}
	return true
}

// shapeTokens bounds how far a document is read for its keys.
const shapeTokens = 1 << 16

// shapeOf reads the keys of a JSON object or of the first object in a JSON list. It is false for text
// that does not begin as one; what comes after the first keys may be cut off or broken.
func shapeOf(body []byte) (jsonShape, bool) {
	shape := jsonShape{strings: map[string]string{}}
	if body[0] != '{' && body[0] != '[' {
		return shape, false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	open, err := d.Token()
	if err == nil && open == json.Delim('[') {
		shape.list = true
		open, err = d.Token()
	}
	if err != nil || open != json.Delim('{') {
		return shape, false
	}
	depth, key, tokens := 1, "", 0
	for ; tokens < shapeTokens; tokens++ {
		t, err := d.Token()
		if err != nil {
			break
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
			continue
		case json.Delim('}'), json.Delim(']'):
			if depth--; depth == 0 {
				return shape, true
			}
			if depth == 1 {
				key = ""
			}
			continue
		}
		if depth != 1 {
			continue
		}
		if key == "" {
			key, _ = t.(string)
			shape.keys = append(shape.keys, key)
			continue
		}
		if s, ok := t.(string); ok {
			shape.strings[key] = s
		}
		key = ""
	}
	return shape, len(shape.keys) > 0
}

// recogniseJSON answers for text that begins as a JSON object or list of objects.
func recogniseJSON(name string, body []byte) (kind, bool) {
	body = bytes.TrimSpace(withoutPrompts(body))
	s, ok := shapeOf(body)
	if !ok {
		// An empty list is all that HNS shows when it holds nothing.
		return kind{format: WindowsHNS}, string(body) == "[]" && formatOfName(name) == WindowsHNS
	}
	if s.has("kind") || s.has("apiVersion") {
		if k, ok := kindOfObject(s.strings["apiVersion"], s.strings["kind"], s.has("items")); ok {
			return k, true
		}
	}
	switch {
	case s.has("nftables"):
		return kind{format: NFTJSON}, true
	case s.has("kubeproxy.config.k8s.io"):
		return kind{format: ProxyConfigz}, true
	case s.has("kubeletconfig"):
		return unknown("the kubelet's /configz: only kube-proxy's is read"), true
	case s.has("lastUpdated", "currentTime"), s.has("nodeEligible", "healthy"):
		return kind{format: ProxyHealthz}, true
	case s.has("cniVersion"), s.has("type", "ipam"), s.has("plugins", "name"):
		return kind{format: CNIConfig}, true
	case s.list && s.has("ifname", "addr_info"):
		return kind{format: IPAddr}, true
	case s.list && s.has("ifname", "hairpin"), s.list && s.has("ifname", "state", "master", "priority"):
		return kind{format: BridgeLink}, true
	case s.list && s.has("ifname", "mtu"):
		return kind{format: IPLink}, true
	case s.list && s.has("dst", "flags"), s.list && s.has("dst", "dev"):
		return kind{format: IPRoute}, true
	case s.list && s.has("priority", "src"):
		return kind{format: IPRule}, true
	case s.has("msg", "ts"):
		return whoseJSONLog(name, body), true
	case s.has("log", "stream"):
		return unknown("a log file of the container runtime: capture it with kubectl logs"), true
	case isCalicoJSON(s):
		return kind{format: CalicoBPF}, true
	case isCiliumJSON(name, s):
		return kind{format: CiliumText}, true
	case s.list && s.has("key", "value"):
		return kind{format: BPFMap}, true
	case s.has("ActivityId"), s.has("HostComputeEndpoints"), s.has("HostComputeNetwork"), s.has("PortMappings", "FrontendVIPs"),
		s.has("References", "Policies"), s.has("IsRemoteEndpoint"), s.has("ID", "IPAddress"), s.has("value", "Count") && bytes.Contains(body, []byte(`"ActivityId"`)):
		return kind{format: WindowsHNS}, true
	}
	if len(s.keys) == 0 {
		return unknown("an empty JSON object"), true
	}
	return unknown(fmt.Sprintf("JSON of an unknown shape, with the keys %s", cut(strings.Join(s.keys, ", "), 80))), true
}

func isCalicoJSON(s jsonShape) bool { return s.list && s.has("frontend", "backends") }

// isCiliumJSON knows `cilium service list` and `cilium status`; of the map listings, which are objects
// keyed by address, only the name tells whose they are.
func isCiliumJSON(name string, s jsonShape) bool {
	return s.list && s.has("spec", "status") && !s.has("kind") ||
		s.has("kube-proxy-replacement") || s.has("cilium", "kvstore") ||
		strings.Contains(baseName(name), "cilium")
}

// whoseJSONLog tells kube-proxy's log in JSON form from others of that form.
func whoseJSONLog(name string, body []byte) kind {
	head := body[:min(len(body), sampleBytes)]
	if formatOfName(name) == ProxyLog || bytes.Contains(head, []byte("proxier.go")) || bytes.Contains(head, []byte("kube-proxy")) {
		return kind{format: ProxyLog}
	}
	return unknown("a log in JSON with nothing that only kube-proxy prints; if it is kube-proxy's, name it kube-proxy.log")
}

// kindOfObject tells what an object with these type fields is. It is false when they name no object.
func kindOfObject(apiVersion, objectKind string, items bool) (kind, bool) {
	group, _, _ := strings.Cut(apiVersion, "/")
	switch {
	case group == "kubeproxy.config.k8s.io":
		return kind{format: ProxyConfig}, true
	case apiVersion == "v1" && objectKind == "Config":
		return kind{format: Kubeconfig}, true
	case apiVersion == "v1" && objectKind == "Status":
		return unknown("an error answer of the API server, not an object"), true
	case group == "meta.k8s.io":
		return unknown("the API server's table form: capture it with -o yaml or -o json"), true
	case group == "svcnet.dev":
		return unknown("a document of svcnet's own: give the bundle or the captures that it was made from"), true
	case strings.HasSuffix(group, ".config.k8s.io"), group == "kubeadm.k8s.io":
		return unknown("configuration of another component (" + apiVersion + " " + objectKind + ")"), true
	case apiVersion == "":
		return kind{}, false
	case objectKind != "" || items:
		return kind{format: Objects}, true
	}
	return kind{}, false
}
