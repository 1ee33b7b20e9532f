// Package demo holds the evidence behind --demo: one node of a three-node cluster, recorded whole while its
// kube-proxy 1.36 was stopped and a pod was replaced, so that one of three backends is stale and a ready one
// is missing. Its sysctls are left out, because the network namespace that it was recorded in forwarded nothing
// (net.ipv4.ip_forward was 0), unlike a node that serves pods; so are its nft listings, which show the same rules again.
//
// The package holds files only and knows nothing of what they mean.
package demo

import (
	"embed"
	"io/fs"
)

//go:embed node-1
var files embed.FS

// Node returns the recorded files of node-1, each named after the command that printed it.
func Node() (fs.FS, error) { return fs.Sub(files, "node-1") }

// Namespace and Service name the Service of the recording that is traced when nothing else is asked for.
const (
	Namespace = "store"
	Service   = "web"
)
