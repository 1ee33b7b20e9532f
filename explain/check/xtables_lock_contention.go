package check

import (
	"fmt"

	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// xtablesLockContention: kube-proxy cannot write because others hold the lock of iptables. That it waits now and then is
// normal.
var xtablesLockContention = Check{
	ID: "xtables-lock-contention", Severity: Error,
	Title:    "nodes on which other programs hold the lock of iptables",
	Explains: unsynced,
	Node: func(n *Node) []report.Finding {
		t := n.lockTrouble()
		if !t.lasts() || !t.current(n) && n.behind() == nil {
			n.silentProxy()
			return nil
		}
		return []report.Finding{{
			Subject: "/run/xtables.lock",
			Message: fmt.Sprintf("iptables-restore failed %s because another program holds the xtables lock, and no sync of kube-proxy's succeeded since: its rules are those of before",
				t.when()),
			Want:     "the lock is free within the wait of a few seconds",
			Got:      fmt.Sprintf("held at each of %d attempts over %s", len(t.events), lasting(t.last.Sub(t.since))),
			Evidence: t.evidence(),
			Causes: []string{
				"a program that hangs while it holds the lock (kernels of CentOS 7 before 3.10.0-862 left such iptables processes behind)",
				"another program writes iptables all the time (a network plugin, fail2ban, a script)",
				"with very many Services one restore takes longer than others wait for the lock",
			},
			Remedy: "on the node find the holder with `fuser -v /run/xtables.lock` (or lsof) and stop it; one that cannot be killed needs a newer kernel and a reboot. With very many Services raise iptables.minSyncPeriod of kube-proxy",
		}}
	},
}

// lockTrouble is what the log says of a lock that others held.
func (n *Node) lockTrouble() trouble {
	return n.trouble(func(e *traits.Event) bool { return e.Kind == traits.LockHeld }, endsSync)
}
