// Package relay holds what proves and measures the proxy in userspace mode (repair/proxy/relay).
//
// The tests make a small network of namespaces without a single rule of netfilter: a node with two pods, another node
// with two more, a client from outside. The real program runs on the node (`svcnet proxy --userspace -f …`), and real
// connections go through it. cmd/bench measures it beside HAProxy and nginx, cmd/load is what asks and answers there.
package relay
