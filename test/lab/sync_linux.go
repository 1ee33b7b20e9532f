package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The sentinel is a Service of the lab's own. It is changed after what is waited for, and kube-proxy writes all
// changes that it has seen in one go: once the sentinel's new number is in the kernel, so is everything before
// it. Services and EndpointSlices reach kube-proxy on two ways, so the number is on both: it is the port of the
// Service and the port of its endpoints, which are addresses for documentation.
const (
	sentinelNamespace = "svcnet-lab"
	sentinelName      = "sentinel"
	sentinelIPv4      = "192.0.2.1"
	sentinelIPv6      = "2001:db8::1"
)

// a proxyMode is how the sentinel is read back from the kernel. Every pattern must be found in the text of its
// command, %d being the number.
type proxyMode struct {
	name  string
	reads []sentinelRead
	// idle: kube-proxy must have nothing left to do as well. What it writes again each time is gone for a moment.
	idle bool
}

type sentinelRead struct {
	argv []string
	// servers: the node's virtual servers instead of a command's output.
	servers  bool
	patterns []string
	// once is found one time, empty: whatever is there.
	once string
	// steady: the text is the same a moment later. What is to go goes one after the other.
	steady bool
}

var proxyModes = []proxyMode{
	{name: "iptables", reads: []sentinelRead{
		{argv: []string{"iptables-save", "-t", "nat"}, patterns: []string{
			`--comment "svcnet-lab/sentinel cluster IP" .*--dport %d `, `--to-destination 192\.0\.2\.1:%d\n`}},
		{argv: []string{"ip6tables-save", "-t", "nat"}, patterns: []string{
			`--comment "svcnet-lab/sentinel cluster IP" .*--dport %d `, `--to-destination \[2001:db8::1\]:%d\n`}},
	}},
	{name: "nftables", reads: []sentinelRead{
		{argv: []string{"nft", "list", "table", "ip", "kube-proxy"}, patterns: []string{
			`tcp \. %d : goto service-\w+-svcnet-lab/sentinel/`, `192\.0\.2\.1( \. |:)%d\b`}},
		{argv: []string{"nft", "list", "table", "ip6", "kube-proxy"}, patterns: []string{
			`tcp \. %d : goto service-\w+-svcnet-lab/sentinel/`, `2001:db8::1( \. |\]:)%d\b`}},
	}},
	// Virtual servers come first, then entries of sets, then rules, and the virtual servers that go come last: once the
	// sentinel has one virtual server, with the new number, those that were to go are going. Entries of sets with a prefix
	// of full length, such as a source range of one address, are deleted and added with every sync: the kernel prints
	// them without the prefix, and kube-proxy takes them for others (ipset.go, syncIPSetEntries, up to 1.36 at least).
	{name: "ipvs", idle: true, reads: []sentinelRead{
		{servers: true, patterns: []string{`TCP \S+:%[1]d\n-> 192\.0\.2\.1:%[1]d\n`}, once: `-> 192\.0\.2\.1:`},
		{servers: true, patterns: []string{`TCP \S+:%[1]d\n-> \[2001:db8::1\]:%[1]d\n`}, once: `-> \[2001:db8::1\]:`},
		{argv: []string{"ipset", "save", "KUBE-CLUSTER-IP"}, patterns: []string{`,tcp:%d\n`}},
		{argv: []string{"ipset", "save", "KUBE-6-CLUSTER-IP"}, patterns: []string{`,tcp:%d\n`}},
		{argv: []string{"iptables-save", "-t", "nat"}, patterns: []string{`-A KUBE-SERVICES .*--match-set KUBE-CLUSTER-IP `}},
		{argv: []string{"ip6tables-save", "-t", "nat"}, patterns: []string{`-A KUBE-SERVICES .*--match-set KUBE-6-CLUSTER-IP `}},
		{servers: true, steady: true},
	}},
}

func findMode(name string) (proxyMode, bool) {
	for _, m := range proxyModes {
		if m.name == name {
			return m, true
		}
	}
	return proxyMode{}, false
}

// addSentinel makes the sentinel with number 1. The API server hands out ClusterIPs a moment after it is ready.
func (l *Lab) addSentinel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	err := l.Apply(ctx, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": sentinelNamespace}})
	if err != nil {
		return err
	}
	for {
		err := l.moveSentinel(ctx)
		var refused *APIError
		if !errors.As(err, &refused) || refused.Code < http.StatusInternalServerError && refused.Code != http.StatusTooManyRequests {
			return err
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("add the sentinel Service: %w", err)
		}
	}
}

// moveSentinel gives the sentinel its next number.
func (l *Lab) moveSentinel(ctx context.Context) error {
	number := l.sentinel%60000 + 1
	slice := func(name, addressType, address string) map[string]any {
		return map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": addressType,
			"metadata": map[string]any{"name": name, "namespace": sentinelNamespace,
				"labels": map[string]any{"kubernetes.io/service-name": sentinelName}},
			"ports":     []any{map[string]any{"name": "", "port": number, "protocol": "TCP"}},
			"endpoints": []any{map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": true}}},
		}
	}
	err := l.Apply(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": sentinelName, "namespace": sentinelNamespace},
		"spec": map[string]any{"ipFamilyPolicy": "RequireDualStack",
			"ports": []any{map[string]any{"port": number, "protocol": "TCP"}}},
	}, slice("sentinel-ipv4", "IPv4", sentinelIPv4), slice("sentinel-ipv6", "IPv6", sentinelIPv6))
	if err != nil {
		return err
	}
	l.sentinel = number
	return nil
}

// WaitSynced waits until every Service and EndpointSlice that was written before is in the kernel of the given
// nodes, of all with a running kube-proxy when none is given. It takes kube-proxy's minSyncPeriod, a second or
// two. kube-proxy may still be removing conntrack entries of UDP backends when it returns.
func (l *Lab) WaitSynced(ctx context.Context, nodes ...*Node) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if len(nodes) == 0 {
		for _, n := range l.Nodes {
			if n.ProxyRunning() {
				nodes = append(nodes, n)
			}
		}
	}
	if err := l.moveSentinel(ctx); err != nil {
		return fmt.Errorf("wait for kube-proxy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	for _, n := range nodes {
		var last error
		for {
			begun := time.Now()
			lacks := n.sentinelSeen(ctx, l.sentinel)
			if lacks == nil {
				lacks = n.idle(ctx)
			}
			if lacks == nil {
				break
			}
			if ctx.Err() == nil { // else it says that it was interrupted
				last = lacks
			}
			if err := n.proxyFailure(); err != nil {
				return fmt.Errorf("wait for kube-proxy: %w", err)
			}
			// Where looking takes long it takes kube-proxy's time.
			if !pause(ctx, max(50*time.Millisecond, 2*time.Since(begun))) {
				return fmt.Errorf("wait for kube-proxy on node %s: not synced after %s (last: %w); its log %s ends: %s", n.Name, ready, last, n.ProxyLog(), logTail(n.ProxyLog()))
			}
		}
	}
	return nil
}

// sentinelSeen tells whether the kernel of the node holds the sentinel with that number; the error says what it
// lacks.
func (n *Node) sentinelSeen(ctx context.Context, number int) error {
	n.mu.Lock()
	mode, _ := findMode(n.mode)
	n.mu.Unlock()
	for _, read := range mode.reads {
		text, err := n.readSentinel(ctx, read)
		if err != nil {
			return err
		}
		for _, pattern := range read.patterns {
			if strings.Contains(pattern, "%") {
				pattern = fmt.Sprintf(pattern, number)
			}
			re, err := regexp.Compile(pattern)
			if err != nil {
				return err
			}
			if !re.MatchString(text) {
				return fmt.Errorf("%s shows nothing like %s%s", read, re, read.instead(text))
			}
		}
		if read.once != "" {
			if n := len(regexp.MustCompile(read.once).FindAllString(text, -1)); n != 1 {
				return fmt.Errorf("%s shows %s %d times", read, read.once, n)
			}
		}
		if !read.steady {
			continue
		}
		if !pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
		again, err := n.readSentinel(ctx, read)
		if err != nil {
			return err
		}
		if again != text {
			return fmt.Errorf("%s still changes", read)
		}
	}
	return nil
}

// idleFor is how long kube-proxy must have done nothing: longer than its minSyncPeriod, after which it follows what came
// in during a sync.
const idleFor = 2500 * time.Millisecond

var syncTimes = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_(last_timestamp|last_queued_timestamp)_seconds(\{[^}]*\})? (\S+)$`)

// idle tells whether the node's kube-proxy has nothing left to do, where its mode asks for that; the error says what it
// is at.
func (n *Node) idle(ctx context.Context) error {
	n.mu.Lock()
	mode, _ := findMode(n.mode)
	n.mu.Unlock()
	if !mode.idle {
		return nil
	}
	body, err := n.Get(ctx, "http://127.0.0.1:10249/metrics")
	if err != nil {
		return err
	}
	times := map[string]float64{}
	for _, m := range syncTimes.FindAllStringSubmatch(string(body), -1) {
		if times[m[1]+m[2]], err = strconv.ParseFloat(m[3], 64); err != nil {
			return err
		}
	}
	ended := 0
	for of, at := range times {
		family, ok := strings.CutPrefix(of, "last_timestamp")
		if !ok {
			continue
		}
		ended++
		if queued := times["last_queued_timestamp"+family]; queued > at {
			return fmt.Errorf("kube-proxy has not ended the sync that was asked for at %.3f", queued)
		}
		if since := time.Since(time.UnixMicro(int64(at * 1e6))); since < idleFor {
			return fmt.Errorf("kube-proxy has ended a sync only %v ago", since)
		}
	}
	if ended == 0 {
		return errors.New("kube-proxy does not say when it synced last")
	}
	return nil
}

// instead is the place of a text where what is to be there once is found, with the line before.
func (r sentinelRead) instead(text string) string {
	if r.once == "" {
		return ""
	}
	return fmt.Sprintf(", but %q", regexp.MustCompile(`(?m)^.*\n.*`+r.once+`.*$`).FindAllString(text, 3))
}

func (r sentinelRead) String() string {
	if r.servers {
		return "IPVS"
	}
	return strings.Join(r.argv, " ")
}

func (n *Node) readSentinel(ctx context.Context, r sentinelRead) (string, error) {
	if r.servers {
		return n.virtualServers()
	}
	return n.Run(ctx, "", r.argv...)
}
