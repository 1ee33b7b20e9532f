//go:build guest

package audit

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/svcnet/svcnet/test/lab"
)

// repairsInGuest is how many changes a sample mends: one of each kind.
const repairsInGuest = 30

// TestRepairIPVS is TestRepair on a node whose kube-proxy is in IPVS mode, in a guest. A change takes up to half a minute:
// make full makes each kind several times (SVCNET_REPAIR_MUTANTS, SVCNET_GUEST_MINUTES).
func TestRepairIPVS(t *testing.T) { runInGuest(t, "TestRepairInGuest") }

// TestRepairInGuest is what TestRepairIPVS runs.
func TestRepairInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return
	}
	w := ward{"IPVS mode", "ipvs", lab.Legacy, newIPVS}
	l := inGuest.bring(t, "g")
	defer showLogs(t, l)
	w.treat(t, l, setting(t, "SVCNET_REPAIR_MUTANTS", repairsInGuest))
}

// killsInGuest is how many times a sample kills a repair there.
const killsInGuest = 4

// TestRepairKilledIPVS is TestRepairKilled on a node whose kube-proxy is in IPVS mode, in a guest.
func TestRepairKilledIPVS(t *testing.T) { runInGuest(t, "TestRepairKilledInGuest") }

// TestRepairKilledInGuest is what TestRepairKilledIPVS runs.
func TestRepairKilledInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return
	}
	l := inGuest.bring(t, "g")
	defer showLogs(t, l)
	k := &killer{clinic: newClinic(t, l, newIPVS)}
	k.dice = rand.New(rand.NewPCG(uint64(setting(t, "SVCNET_REPAIR_SEED", repairSeed)), 9))
	k.killAll(t, setting(t, "SVCNET_REPAIR_KILLS", killsInGuest))
}

// ipvsSettings are those on which what IPVS mode keeps depends, each beside the lab's own.
var ipvsSettings = []struct {
	name   string
	change func(config map[string]any)
}{
	{"least connections, masquerade all, another mark", func(config map[string]any) {
		lab.Section(config, "ipvs")["scheduler"] = "lc"
		lab.Section(config, "iptables")["masqueradeAll"], lab.Section(config, "iptables")["masqueradeBit"] = true, 10
	}},
	{"hash, local by bridge", func(config map[string]any) {
		lab.Section(config, "ipvs")["scheduler"] = "mh"
		config["detectLocalMode"], config["detectLocal"] = "BridgeInterface", map[string]any{"bridgeInterface": "cni0"}
	}},
	{"no detector, node port range", func(config map[string]any) {
		config["clusterCIDR"], config["nodePortAddresses"] = "", []string{"172.30.0.0/24", "fd00:30::/64"}
	}},
	{"local by prefix, no node ports anywhere", func(config map[string]any) {
		config["detectLocalMode"], config["detectLocal"] = "InterfaceNamePrefix", map[string]any{"interfaceNamePrefix": "veth"}
		config["nodePortAddresses"] = []string{"192.0.2.0/24", "2001:db8::/64"}
	}},
}

// TestGeneratedIPVS starts kube-proxy in IPVS mode with one setting after the other, on random objects, and sets what it
// keeps beside what repair/kubeproxy says it keeps.
func TestGeneratedIPVS(t *testing.T) { runInGuest(t, "TestGeneratedInGuest") }

// TestGeneratedInGuest is what TestGeneratedIPVS runs.
func TestGeneratedInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return
	}
	l := inGuest.bring(t, "g")
	defer showLogs(t, l)
	ctx, n := t.Context(), l.Node("n1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &world{lab: l, dice: rand.New(rand.NewPCG(uint64(setting(t, "SVCNET_AUDIT_SEED", worldSeed)), 1)), services: map[string]*worldService{}, ipvs: true}
	w.begin(t)
	for _, s := range ipvsSettings {
		if n.ProxyRunning() {
			must(n.StopProxy())
		}
		for _, program := range []string{"iptables-restore", "ip6tables-restore"} {
			_, err := n.Run(ctx, "*nat\nCOMMIT\n*filter\nCOMMIT\n", program)
			must(err)
		}
		n.ConfigureProxy(func(config map[string]any) {
			clear(lab.Section(config, "iptables"))
			config["nodePortAddresses"], config["clusterCIDR"], config["detectLocalMode"] = nil, lab.ClusterCIDRs, ""
			s.change(config)
		})
		must(n.StartProxy(ctx))
		must(l.WaitSynced(ctx, n))
		r, err := newReader(l, n)
		must(err)
		snap, err := r.read(ctx)
		must(err)
		d, err := generatedServersDiffer(snap)
		must(err)
		if d != "" {
			t.Errorf("%s: %s", s.name, d)
			keep(t, "generated-"+strings.ReplaceAll(s.name, " ", "-"), snap)
		}
	}
}
