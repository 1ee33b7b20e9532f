package redact

import (
	"reflect"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// What a value of an object is, its field says: wordFields hold words of the API, proseFields text for people, secrets
// nothing that anybody else may see; all others hold names.

var wordFields = set("acceptContentTypes", "addressType", "apiGroup", "apiGroups", "apiVersion", "appProtocol", "architecture", "bindAddress",
	"bridge", "cniVersion", "containerRuntimeVersion", "contentType", "detectLocalMode", "direction", "dnsPolicy", "effect", "externalTrafficPolicy",
	"format", "fieldPath", "imagePullPolicy", "internalTrafficPolicy", "ipFamilies", "ipFamily", "ipFamilyPolicy", "ipMode", "kernelVersion", "kind",
	"kubeProxyVersion", "kubeletVersion", "mode", "mountPropagation", "nodePortAddresses", "operatingSystem", "operator", "osImage", "phase",
	"policy", "preemptionPolicy", "protocol", "qosClass", "reason", "resources", "restartPolicy", "scheduler", "scope", "sessionAffinity",
	"status", "terminationMessagePolicy", "trafficDistribution", "type", "verbs", "whenUnsatisfiable", "bridgeInterface", "interfaceNamePrefix",
	"pathType", "controller", "kube-proxy-replacement", "state", "healthy", "ipam", "capabilities", "featureGates", "drop", "add", "mountPath", "path", "terminationMessagePath",
	// of HNS
	"activityId", "addressPrefix", "flags", "policyType", "distributionType", "references", "policies", "settings", "version", "major", "minor")

var proseFields = set("message", "note", "error", "lastError")

// flagFields hold the arguments of a program, one a value.
var flagFields = set("args", "command")

// nameFlags are flags whose value is a name whatever it looks like.
var nameFlags = set("hostname-override", "cluster-name", "node-name", "bind-interface")

// hostFlags are those whose value is a path or a server: names, but with words of formats among them.
var hostFlags = set("kubeconfig", "config", "master", "server", "service-account-issuer", "cluster-domain", "cloud-config")

// switches are flags that have no value of their own.
var switches = set("bind-address-hard-fail", "cleanup", "init-only", "ipvs-strict-arp", "iptables-localhost-nodeports", "logtostderr",
	"masquerade-all", "profiling")

// secretFlag tells flags whose value nobody else may see; a file that holds it is a path.
var secretFlag = regexp.MustCompile(`(?:^|-)(?:token|password|secret|passphrase|api-key)$`)

var secretFields = set("certificate-authority-data", "client-certificate-data", "client-key-data", "token", "password", "client-secret",
	"id-token", "refresh-token", "auth", "caBundle", "stringData", "binaryData")

// freeMaps hold keys that people chose.
var freeMaps = set("annotations", "labels", "matchLabels", "nodeSelector", "selector", "deprecatedTopology")

// labelKeys without a domain that everybody uses.
var labelKeys = set("app", "component", "controller-revision-hash", "k8s-app", "name", "pod-template-generation", "pod-template-hash", "tier", "role", "run", "version")

// domainOfKubernetes are the domains of labels and annotations that are Kubernetes' own, or those of what many clusters
// run on.
var domainOfKubernetes = regexp.MustCompile(`^([a-z0-9.-]+\.)?(kubernetes\.io|k8s\.io|openstack\.org|amazonaws\.com|azure\.com|google\.com|hetzner\.cloud|projectcalico\.org|cilium\.io|metallb\.io|metallb\.universe\.tf|digitalocean\.com|istio\.io|linkerd\.io|openshift\.io|coreos\.com)$`)

func set(words ...string) map[string]bool {
	out := make(map[string]bool, len(words))
	for _, w := range words {
		out[w] = true
	}
	return out
}

// fieldNames are the names of all fields of the objects that are read.
func fieldNames() map[string]bool {
	out := map[string]bool{}
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			walk(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && tag != "-" {
				out[tag] = true
			}
			walk(f.Type)
		}
	}
	for _, o := range []any{
		corev1.Service{}, corev1.Endpoints{}, corev1.Node{}, corev1.Pod{}, corev1.Namespace{}, corev1.ConfigMap{}, corev1.Event{},
		discoveryv1.EndpointSlice{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{},
	} {
		walk(reflect.TypeOf(o))
	}
	return out
}

// place is where a value stands: the keys that lead to it, the innermost last.
type place []string

func (p place) last() string {
	if len(p) == 0 {
		return ""
	}
	return p[len(p)-1]
}

// free tells whether keys at this place are people's.
func (p place) free() bool {
	return freeMaps[strings.TrimPrefix(p.last(), managed)]
}

// managed is how managedFields mark fields.
const managed = "f:"

// secret tells whether nobody else may see what stands at this place.
func (p place) secret() bool {
	for _, k := range p[max(0, len(p)-2):] {
		if secretFields[k] || strings.HasSuffix(k, "-data") {
			return true
		}
	}
	return false
}

// key rewrites a key that stands at a place.
func (r *renaming) key(k string, at place) string {
	r.waiting = ""
	if inner, ok := strings.CutPrefix(k, "k:{"); ok { // an item of a list in managedFields
		return "k:" + r.json("{"+inner, r.objectStrings())
	}
	switch {
	case at.free() && strings.HasPrefix(k, managed):
		return managed + r.label(k[len(managed):])
	case at.free():
		return r.label(k)
	case secretFields[k]:
		return k
	case r.fields[k] && at.last() != "data":
		return k
	}
	return r.text(k, grammar)
}

// label is the new key of a label or an annotation.
func (r *renaming) label(k string) string {
	domain, local, ok := strings.Cut(k, "/")
	if !ok {
		if labelKeys[k] || k == "matchLabels" || k == "matchExpressions" {
			return k
		}
		return r.text(k, name)
	}
	if !domainOfKubernetes.MatchString(domain) {
		return r.text(domain, name) + "/" + r.text(local, name)
	}
	return domain + "/" + r.text(local, grammar)
}

// value rewrites a string that stands at a place, whose last key is its own.
func (r *renaming) value(s string, at place) string {
	k := at.last()
	if strings.HasSuffix(k, "/last-applied-configuration") && strings.HasPrefix(s, "{") {
		return r.json(s, r.objectStrings()) // an object once more
	}
	if len(at) > 1 && at[:len(at)-1].free() {
		if strings.HasSuffix(k, "proxy-protocol") || domainOfKubernetes.MatchString(strings.Split(k, "/")[0]) && r.isWord(s, prose) && !r.learned[strings.ToLower(s)] && strings.Contains(k, "/") && wordLabels[k] {
			return r.text(s, grammar)
		}
		return r.text(s, name)
	}
	switch {
	case at.secret():
		if s == "" {
			return s
		}
		return "redacted"
	case k == "creationTimestamp" || k == "resourceVersion":
		return r.text(s, grammar)
	case strings.Contains(s, "\n") && (strings.Contains(k, "conf") || strings.Contains(s, ": ")):
		return r.yaml(s)
	case flagFields[k]:
		if strings.ContainsAny(s, " \t\n") {
			return r.flags(s) // a line for a shell
		}
		return r.flag(s)
	case proseFields[k]:
		return r.prose(s)
	case wordFields[k] || wordFields[lowerFirst(k)]:
		return r.text(s, grammar)
	}
	return r.text(s, name)
}

// wordLabels are labels and annotations whose value is a word of Kubernetes.
var wordLabels = set("endpointslice.kubernetes.io/managed-by", "kubernetes.io/arch", "kubernetes.io/os", "service.kubernetes.io/topology-mode",
	"service.kubernetes.io/topology-aware-hints", "beta.kubernetes.io/os", "beta.kubernetes.io/arch", "kubernetes.io/cluster-service")

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// bare rewrites what has no quotes in an object.
func (r *renaming) bare(s string, at place) string {
	if at.secret() && s != "null" && s != "true" && s != "false" {
		return `"redacted"`
	}
	return r.text(s, name)
}

// flag rewrites an argument of a program; one that is no flag may be the value of the one before.
func (r *renaming) flag(s string) string {
	before := r.waiting
	r.waiting = ""
	if !strings.HasPrefix(s, "-") || strings.HasSuffix(before, "-arg") {
		return r.flagValue(before, s)
	}
	f, v, ok := strings.Cut(s, "=")
	bare := strings.TrimLeft(f, "-")
	if !ok {
		if !switches[bare] {
			r.waiting = bare
		}
		return r.text(f, grammar)
	}
	return r.text(f, grammar) + "=" + r.flagValue(bare, v)
}

// flagValue rewrites the value of a flag; the flag is empty where nobody knows it.
func (r *renaming) flagValue(f, v string) string {
	switch {
	case v == "", strings.HasPrefix(v, "$("), strings.HasPrefix(v, "${"): // a variable that a pod sets
	case secretFlag.MatchString(f):
		return "redacted"
	case strings.HasSuffix(f, "-arg"): // for a program inside this one
		if f, inner, ok := strings.Cut(v, "="); ok {
			return r.text(f, grammar) + "=" + r.flagValue(strings.TrimLeft(f, "-"), inner)
		}
	case nameFlags[f]:
		return r.text(v, name)
	case hostFlags[f]:
		return r.text(v, host)
	}
	return r.text(v, grammar)
}

// betweenFlags ends an argument: blanks, zeros as the kernel has them, quotes and brackets of a list.
func betweenFlags(c byte) bool { return strings.IndexByte(" \t\x00\r\n\"'[]", c) >= 0 }

// flags rewrites a command line, or the flags that a log lists. A flag and its value may stand in two lines.
func (r *renaming) flags(data string) string {
	var b strings.Builder
	r.waiting = ""
	for i := 0; i < len(data); {
		if betweenFlags(data[i]) {
			b.WriteByte(data[i])
			i++
			continue
		}
		end := i
		for end < len(data) && !betweenFlags(data[end]) {
			end++
		}
		switch word := data[i:end]; word {
		case "-", ",":
			b.WriteString(word)
		default:
			// "--hostname-override=" before a quote waits for what is quoted.
			if f, ok := strings.CutSuffix(word, "="); ok && strings.HasPrefix(f, "-") && end < len(data) && (data[end] == '"' || data[end] == '\'') {
				b.WriteString(r.flag(f) + "=")
				break
			}
			b.WriteString(r.flag(word))
		}
		i = end
	}
	r.waiting = ""
	return b.String()
}
