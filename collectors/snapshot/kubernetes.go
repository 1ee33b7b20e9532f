package snapshot

import (
	"bytes"
	"regexp"
	"strings"
)

var (
	// klogLine finds klog's header anywhere near the start: kubectl logs --timestamps and --prefix, CRI log
	// files and the journal put something before it.
	klogLine = regexp.MustCompile(`^.{0,160}?\b([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6}\s+\d+ ([\w.-]+\.go):\d+\]`)
	flagLine = regexp.MustCompile(`^\s*(- )?["']?--[a-z][a-z0-9.-]*(=|["',]|\s|$)`)
	flagName = regexp.MustCompile(`(?:^|[\s"'])--([a-z][a-z0-9.-]*)`)
	procLine = regexp.MustCompile(`^\S*\b(kube-proxy|kube-apiserver|kube-controller-manager|kubelet|k3s|rke2)\b.* --[a-z]`)
	metric   = regexp.MustCompile(`^(# (HELP|TYPE) \w+ |[a-zA-Z_:][\w:]*(\{[^}]*\})? ([+-]Inf|NaN|[+-]?\d+(\.\d+)?([eE][+-]?\d+)?)(\s\d+)?$)`)
	weaveLog = regexp.MustCompile(`^(DEBU|INFO|WARN|ERRO|FATA|PANI): \d{4}/\d\d/\d\d \d\d:\d\d:\d\d`)
	felixLog = regexp.MustCompile(`^(bird: |.{0,80}\[(DEBUG|INFO|WARNING|ERROR|FATAL)\]\[\d+\] )`)
	logfmt   = regexp.MustCompile(`^.{0,80}\blevel=(debug|info|warning|warn|error|fatal) .*\bsubsys=`)
)

var kubernetesTells = []tell{
	{ProxyLog, func(l string) bool { return strings.Contains(l, ".go:") && klogLine.MatchString(l) }},
	{CNILog, func(l string) bool {
		return weaveLog.MatchString(l) || felixLog.MatchString(l) || logfmt.MatchString(l)
	}},
	{ProxyArgs, func(l string) bool {
		return strings.Contains(l, "--") && (flagLine.MatchString(l) || procLine.MatchString(l))
	}},
	{ProxyMetrics, func(l string) bool { return metric.MatchString(l) }},
}

// proxySources are source files that only kube-proxy logs from. reflector.go and others are shared by
// all clients of the API and tell nothing.
var proxySources = map[string]bool{
	"proxier.go": true, "server_others.go": true, "server_linux.go": true, "endpointslicecache.go": true,
	"bounded_frequency_runner.go": true, "proxier_health.go": true, "roundrobin.go": true, "graceful_termination.go": true,
	"ipset.go": true, "service_health.go": true, "proxy_health.go": true, "topology.go": true,
}

// otherSources are source files of other components that log in the same form.
var otherSources = map[string]string{
	"kubelet.go": "kubelet", "kubelet_node_status.go": "kubelet", "kuberuntime_manager.go": "kubelet", "pod_workers.go": "kubelet",
	"scheduler.go": "kube-scheduler", "schedule_one.go": "kube-scheduler",
	"controllermanager.go": "kube-controller-manager", "garbagecollector.go": "kube-controller-manager", "replica_set.go": "kube-controller-manager",
	"instance.go": "kube-apiserver", "genericapiserver.go": "kube-apiserver", "alloc.go": "kube-apiserver",
}

// proxyWords are texts that kube-proxy logs from files whose names it shares with others.
var proxyWords = []string{
	"kube-proxy", "Proxier", "proxy mode", "*v1.EndpointSlice", "*v1.Service:", "*v1.Service ", "*v1.Endpoints",
	"nf_conntrack", "service config controller", "endpoint slice config", "endpoints config", "node config controller",
	"this node's IP", "retrieved node IP", "retrieve node info", "healthcheck \"", "iptables-restore", "ipvs",
	"detect-local-mode", "clusterCIDR", "--proxy-mode", "nodePort for ",
}

// whoseLog tells kube-proxy's log from those of other programs that log with klog.
func whoseLog(name string, lines []string) kind {
	named := formatOfName(name)
	if named == ProxyLog {
		return kind{format: ProxyLog}
	}
	if named == CNILog {
		return kind{format: CNILog}
	}
	other := ""
	for _, l := range lines {
		m := klogLine.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if proxySources[m[2]] {
			return kind{format: ProxyLog}
		}
		if by := otherSources[m[2]]; by != "" && other == "" {
			other = by
		}
	}
	if other != "" {
		return unknown("a log of " + other + ": only the service proxy's log is read")
	}
	for _, l := range lines {
		for _, w := range proxyWords {
			if strings.Contains(l, w) {
				return kind{format: ProxyLog}
			}
		}
	}
	return unknown("a log in the form that all Kubernetes components use, with nothing that only kube-proxy prints; if it is kube-proxy's, name it kube-proxy.log")
}

// Flags that only one component has. The API server and the controller manager share the service range.
var (
	proxyFlags = map[string]bool{
		"proxy-mode": true, "hostname-override": true, "masquerade-all": true, "detect-local-mode": true, "nodeport-addresses": true,
		"iptables-masquerade-bit": true, "iptables-sync-period": true, "iptables-min-sync-period": true, "iptables-localhost-nodeports": true,
		"ipvs-scheduler": true, "ipvs-strict-arp": true, "ipvs-sync-period": true, "ipvs-min-sync-period": true, "ipvs-exclude-cidrs": true,
		"conntrack-max-per-core": true, "conntrack-min": true, "healthz-bind-address": true, "metrics-bind-address": true, "cluster-cidr": true,
		"pod-bridge-interface": true, "pod-interface-name-prefix": true, "proxy-port-range": true, "config-sync-period": true,
	}
	apiServerFlags = map[string]bool{
		"service-cluster-ip-range": true, "service-node-port-range": true, "etcd-servers": true, "advertise-address": true,
		"service-account-issuer": true, "kubelet-client-certificate": true, "enable-admission-plugins": true,
	}
)

// whoseFlags tells whose command line it is: by the program's name where the text shows it, else by
// flags that only one program has.
func whoseFlags(name string, lines []string) kind {
	text := strings.Join(lines, "\n")
	switch {
	case strings.Contains(text, "kube-apiserver"):
		return kind{format: APIServerFlags}
	case strings.Contains(text, "kube-proxy"):
		return kind{format: ProxyArgs}
	}
	var proxy, server bool
	for _, m := range flagName.FindAllStringSubmatch(text, -1) {
		proxy = proxy || proxyFlags[m[1]]
		server = server || apiServerFlags[m[1]]
	}
	switch {
	case server:
		return kind{format: APIServerFlags}
	case proxy, formatOfName(name) == ProxyArgs:
		return kind{format: ProxyArgs}
	}
	return unknown("a command line with no flag that kube-proxy or kube-apiserver alone has")
}

// whoseMetrics looks in the whole text: the proxy's own metrics stand behind those of the Go runtime.
func whoseMetrics(text []byte) kind {
	if bytes.Contains(text, []byte("\nkubeproxy_")) || bytes.HasPrefix(text, []byte("kubeproxy_")) || bytes.Contains(text, []byte(" kubeproxy_")) {
		return kind{format: ProxyMetrics}
	}
	return unknown("metrics of a program other than kube-proxy: no kubeproxy_ metric in them")
}
