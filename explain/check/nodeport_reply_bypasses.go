package check

import "github.com/svcnet/svcnet/explain/report"

const nodePortReplyBypassesID = "nodeport-reply-bypasses-node"

// nodePortReplyBypasses: a client elsewhere in the cluster that dials a node port of this node is sent on under its own
// address to a backend on a third node, which answers it directly. kube-proxy works so: it does not masquerade what it
// takes for pod traffic.
var nodePortReplyBypasses = Check{
	ID: nodePortReplyBypassesID, Severity: Info, Rests: onGrid,
	Title: "node ports whose answers to pods of other nodes do not come back through this node",
	Node: func(n *Node) []report.Finding {
		var out []report.Finding
		for _, o := range n.Obstacles() {
			if !o.Reply || o.Result != string(report.ReplyBypasses) {
				continue
			}
			f := o.finding()
			f.Message += ", because the backend answers past this node"
			f.Remedy = "dial the cluster IP from inside of the cluster; node ports are for clients outside of it"
			out = append(out, f)
		}
		return out
	},
}
