// Package proxy is the fallback proxy in kernel mode: it follows Services and EndpointSlices and keeps tables of nftables
// of its own (package table) in the kernel (package kernel), in place of a kube-proxy that is broken, until that is back.
//
// What ought to happen to a packet says explain/intent, for one Service at a time: a change of one Service is computed,
// compared with what the tables hold of it and written, whatever else there is. When the kernel does not take a
// transaction, or somebody deleted the tables, they are made anew as a whole.
package proxy
