package scale

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Fleet is a cluster of which every node can be made.
type Fleet struct {
	all       []service
	endpoints int
	lists     map[string][]byte
}

// NewFleet is the cluster of IPTablesSave and Lists.
func NewFleet(services, endpoints int) *Fleet {
	f := &Fleet{endpoints: endpoints, lists: Lists(services, endpoints)}
	for i := range services {
		f.all = append(f.all, newService(i, endpoints))
	}
	return f
}

// Node is the name of the n-th node, from 0, and what was captured on it, by file name. Every node does the same with
// packets; what has no order in its rules stands in another one, counters and dates are others, and so are its addresses
// and routes. Of the objects, those of nodes are a little newer on each node, as they are in a cluster. Equal n gives
// equal bytes.
func (f *Fleet) Node(n int) (name string, files map[string][]byte) {
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	v := &variation{stamp: at.Format("Mon Jan _2 15:04:05 2006"), rand: rand.New(rand.NewPCG(uint64(n), 1))}
	name = fmt.Sprintf("node-%d", n+1)
	own, pods := fmt.Sprintf("172.30.%d.%d", n/200, 11+n%200), fmt.Sprintf("10.%d.%d", 128+n/250, n%250)
	files = map[string][]byte{
		"iptables-nft-save.txt": save(f.all, f.endpoints, v),
		"services.json":         f.lists["services.json"],
		"endpointslices.json":   f.lists["endpointslices.json"],
		// The kubelets of all nodes tell every few seconds that they are there.
		"nodes.json": bytes.ReplaceAll(f.lists["nodes.json"], []byte(`"status":{`),
			fmt.Appendf(nil, `"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}],`, at.Format(time.RFC3339))),
		"ip-addr.txt":  []byte(strings.NewReplacer("OWN", own, "PODS", pods).Replace(ipAddr)),
		"ip-route.txt": []byte(strings.NewReplacer("OWN", own, "PODS", pods).Replace(ipRoute)),
	}
	return name, files
}

// Write puts what was captured on a node into a folder.
func Write(dir string, files map[string][]byte) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

const ipAddr = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel state UP group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet OWN/16 scope global eth0
       valid_lft forever preferred_lft forever
3: cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UP group default qlen 1000
    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff
    inet PODS.1/24 scope global cni0
       valid_lft forever preferred_lft forever
`

const ipRoute = `default via 172.30.0.1 dev eth0
172.30.0.0/16 dev eth0 proto kernel scope link src OWN
PODS.0/24 dev cni0 proto kernel scope link src PODS.1
local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1
local OWN dev eth0 table local proto kernel scope host src OWN
local PODS.1 dev cni0 table local proto kernel scope host src PODS.1
`
