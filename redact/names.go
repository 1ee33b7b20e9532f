package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base32"
	"encoding/hex"
	"net/netip"
	"regexp"
	"strings"
)

// A mode says what a word is taken for where it stands.
type mode int

const (
	// grammar: the format says what may stand here, and its words are words.
	grammar mode = iota
	// prose: text for people. A word that is a name elsewhere is one here.
	prose
	// name: what people chose. Only Kubernetes' own names stay.
	name
	// host: as name, of a place where formats have words too (a path, a server): it does not make them names elsewhere.
	host
)

// words are those of formats and messages, in lower case, sorted.
//
//go:embed words.txt
var words string

// kubernetesOwn are names that every cluster has, or that stand for a protocol: they say nothing of whose it is.
var kubernetesOwn = []string{
	"amd64", "arm", "arm64", "auto", "coredns", "default", "dns", "dns-tcp", "etcd", "false", "flannel", "grpc", "http", "https", "kube-apiserver",
	"kube-controller-manager", "kube-dns", "kube-flannel", "kube-flannel-ds", "kube-node-lease", "kube-proxy", "kube-public",
	"kube-router", "kube-scheduler", "kube-system", "kubelet", "kubernetes", "linux", "localhost", "metrics", "node-local-dns",
	"nodelocaldns", "none", "null", "true", "windows", "tcp", "udp", "sctp", "calico-node", "cilium", "cilium-config", "kubeadm-config",
	"weave-net", "kindnet", "kube-ipvs0", "system", "NULL", "None", "disabled", "enabled",
	"endpointslice-controller", "endpointslicemirroring-controller", "k8s", "io",
}

// components are the beginnings of names that Kubernetes gives pods and objects of its own parts: what follows is renamed.
var components = []string{
	"kube-apiserver-", "kube-controller-manager-", "kube-scheduler-", "kube-flannel-ds-", "kube-proxy-", "kube-router-",
	"calico-node-", "coredns-", "kube-dns-", "kindnet-", "weave-net-", "etcd-",
}

// renaming is what one key makes of names and addresses.
type renaming struct {
	secret []byte
	vocabulary,
	own map[string]bool
	fields    map[string]bool
	addresses map[netip.Addr]netip.Addr
	names     map[string]string
	// seen are words that were decided on, by mode.
	seen [host + 1]map[string]string
	// learned are words that stood where a name stands, in lower case.
	learned map[string]bool
	// waiting is a flag whose value is the next string of a list.
	waiting string
	// chains are the hashes in the names of kube-proxy's chains, old to new.
	chains map[string]string
}

func newRenaming(key []byte) *renaming {
	r := &renaming{
		secret: key, vocabulary: map[string]bool{}, own: map[string]bool{}, fields: fieldNames(),
		addresses: map[netip.Addr]netip.Addr{}, names: map[string]string{}, learned: map[string]bool{}, chains: map[string]string{},
	}
	for w := range strings.FieldsSeq(words) {
		r.vocabulary[w] = true
	}
	for _, w := range kubernetesOwn {
		r.own[w] = true
	}
	r.forget()
	return r
}

// forget drops what was decided before all names were known.
func (r *renaming) forget() {
	for m := range r.seen {
		r.seen[m] = map[string]string{}
	}
}

// hash is the keyed hash of text, told apart by what it is for.
func (r *renaming) hash(use, text string) [sha256.Size]byte {
	h := hmac.New(sha256.New, r.secret)
	h.Write([]byte(use))
	h.Write([]byte{0})
	h.Write([]byte(text))
	return [sha256.Size]byte(h.Sum(nil))
}

var (
	// plainNumber: numbers, ranges, marks, and times and sizes with their units.
	plainNumber = regexp.MustCompile(`^(\d+(-\d+)?|0x[0-9a-fA-F]+|(\d+(ns|us|ms|s|m|h|d|w|y|min|sec|msec|usec|bit|Kbit|Mbit|Gbit|mss))+|(\d+[hm])+\d+|\d+(e\d+)?([KMGTPE]i?)?[bB]?|\d{4}-\d{2}-\d{2}|[IWEF]\d{4}|\d+e[-+]?\d+)$`)
	apiVersion  = regexp.MustCompile(`^v\d+((alpha|beta)\d+)?$`)
	// device is the name of an interface: what the kernel or a network plugin calls it, and what tells it from others.
	device     = regexp.MustCompile(`^(veth|cali|lxc|br-|tap|azv|eni|gke|vnet|enx|if|nic|tunl|vlan)([0-9a-f]+)$`)
	plainIface = regexp.MustCompile(`^(lo|(eth|ens|eno|wlan|ib|bond|dummy|cni|docker|cbr|tun|tunl|tap|wg|virbr|lxcbr|if|kube-ipvs|sit|gre|erspan|ip6tnl|ip6gre|ip6_vti|ip_vti|teql|vlan|vxlan|team|veth|cpu|swp|em)\d{1,3}|enp\d+s\d+(f\d+)?|ens\d+f\d+|set\d+|map\d+|meter\d+|kube-bridge|nodelocaldns|cilium|vxlan-v6|weave|datapath|vethwe-(datapath|bridge)|flannel|flannel-v6|kube-dummy-if|br-int|br-ex|antrea-gw0|antrea-tun0)$`)
	// dashed is an address as names of nodes and pods have it.
	dashed  = regexp.MustCompile(`\d{1,3}(-\d{1,3}){3}|[0-9a-f]+(-[0-9a-f]+){5,}`)
	uuid    = regexp.MustCompile(`^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`)
	longHex = regexp.MustCompile(`^([0-9a-f]{12,}|[0-9A-F]{12,})$`)
	// chainPrefix is how programs begin the names of their chains and sets.
	chainPrefix = regexp.MustCompile(`^(KUBE|CNI|cali|cali4|cali40|cali6|cali60|DOCKER|FLANNEL|AWS|ISTIO|IP|LIBVIRT|ufw|ufw6|WEAVE|CILIUM|OLD|FWDO|FWDI|PRE|POST|IN|KIND|AZURE|GKE|ANTREA)-`)
)

// word is what a word becomes. A word is letters, digits and hyphens.
func (r *renaming) word(w string, m mode) string {
	out, ok := r.seen[m][w]
	if !ok {
		out = r.decide(w, m)
		r.seen[m][strings.Clone(w)] = out
	}
	return out
}

func (r *renaming) decide(w string, m mode) string {
	switch {
	case r.own[w], plainNumber.MatchString(w):
		return w
	case m == name:
		r.learned[strings.ToLower(w)] = true
	case m == host:
	case m == prose && r.learned[strings.ToLower(w)]:
	case r.isWord(w, m):
		return w
	}
	if plainIface.MatchString(w) || apiVersion.MatchString(w) {
		return w
	}
	return r.renamed(w)
}

// isWord tells whether a word belongs to a format or to messages.
func (r *renaming) isWord(w string, m mode) bool {
	if r.vocabulary[strings.ToLower(w)] || r.fields[w] || len(w) == 1 {
		return true
	}
	if strings.Contains(w, "-") {
		if dashed.MatchString(w) {
			return false
		}
		// Options and sets are made of words; in prose a name may be so too.
		if m == prose && strings.ToUpper(w) != w {
			return false
		}
		for part := range strings.SplitSeq(w, "-") {
			if part != "" && !r.isPart(part) {
				return false
			}
		}
		return true
	}
	return r.isCamel(w)
}

func (r *renaming) isPart(part string) bool {
	return r.vocabulary[strings.ToLower(part)] || plainNumber.MatchString(part) || r.isCamel(part) || len(part) == 1
}

// isCamel tells words that are written together: "nodePortAddresses", "FeatureGates".
func (r *renaming) isCamel(w string) bool {
	if strings.ToLower(w) == w {
		return false
	}
	parts := camelWords(w)
	for _, p := range parts {
		if !r.vocabulary[strings.ToLower(p)] && !plainNumber.MatchString(p) {
			return false
		}
	}
	return len(parts) > 0
}

// camelWords cuts "HTTPServerIPs" into "HTTP", "Server", "IPs".
func camelWords(w string) []string {
	var out []string
	start := 0
	class := func(c byte) int {
		switch {
		case c >= 'A' && c <= 'Z':
			return 1
		case c >= '0' && c <= '9':
			return 2
		}
		return 0
	}
	for i := 1; i < len(w); i++ {
		a, b := class(w[i-1]), class(w[i])
		switch {
		case a == b, a == 1 && b == 0 && i-start == 1:
			continue
		case a == 1 && b == 0 && w[i:] == "s", a == 1 && b == 0 && w[i] == 's' && i+1 < len(w) && class(w[i+1]) == 1:
			continue // a plural: IPs, CIDRs
		case a == 1 && b == 0:
			out = append(out, w[start:i-1])
			start = i - 1
			continue
		}
		out = append(out, w[start:i])
		start = i
	}
	return append(out, w[start:])
}

var small = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// renamed is the new name of a word, of the same kind: a UUID stays one, and so does a chain of a program that is known.
func (r *renaming) renamed(w string) string {
	if out, ok := r.names[w]; ok {
		return out
	}
	out := r.fresh(w)
	r.names[w] = out
	return out
}

func (r *renaming) fresh(w string) string {
	switch {
	case uuid.MatchString(w):
		h := r.hash("uuid", strings.ToLower(w))
		x := hex.EncodeToString(h[:16])
		return cased(w, x[:8]+"-"+x[8:12]+"-"+x[12:16]+"-"+x[16:20]+"-"+x[20:])
	case longHex.MatchString(w):
		return cased(w, r.digits(w, len(w)))
	}
	if m := device.FindStringSubmatch(w); m != nil {
		return m[1] + r.digits(m[2], len(m[2]))
	}
	if chainPrefix.MatchString(w) {
		parts := strings.Split(w, "-")
		for i, p := range parts {
			if p != "" && !r.vocabulary[strings.ToLower(p)] && !plainNumber.MatchString(p) && !chainPrefix.MatchString(p+"-") {
				if device.MatchString(p) { // Calico's chains have the device's name
					parts[i] = r.renamed(p)
					continue
				}
				parts[i] = r.part(p)
			}
		}
		return strings.Join(parts, "-")
	}
	for _, c := range components {
		if rest, ok := strings.CutPrefix(w, c); ok && rest != "" {
			return c + r.word(rest, name)
		}
	}
	use := w
	if w == strings.ToUpper(w) {
		use = strings.ToLower(w)
	}
	h := r.hash("name", use)
	out := "n" + small.EncodeToString(h[:])[:8]
	if w == strings.ToUpper(w) {
		return strings.ToUpper(out)
	}
	return out
}

// part is a part of a chain's name: as long as it was, so that the kernel still takes the whole.
func (r *renaming) part(p string) string {
	h := r.hash("part", p)
	out := small.EncodeToString(h[:])[:max(4, min(len(p), 40))]
	if p == strings.ToUpper(p) {
		return strings.ToUpper(out)
	}
	return out
}

// digits are n hexadecimal digits for w.
func (r *renaming) digits(w string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		h := r.hash("digits", string(rune('0'+i))+strings.ToLower(w))
		b.WriteString(hex.EncodeToString(h[:]))
	}
	return b.String()[:n]
}

func cased(like, s string) string {
	if like == strings.ToUpper(like) {
		return strings.ToUpper(s)
	}
	return s
}
