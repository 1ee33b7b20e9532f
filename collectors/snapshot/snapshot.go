// Package snapshot holds evidence: everything that was read of one node at one moment, as raw text and
// bytes, each with the status of its source. It recognises what a file is by its content, reads loose
// files, folders, archives and bundles into a Snapshot, and writes bundles.
//
// The package is a leaf and does not interpret: parsers for what it holds live in explain, so that a
// parser mended tomorrow reads a bundle of today.
package snapshot

import (
	"cmp"
	"slices"
	"unsafe"
)

// Status is what became of one source.
type Status string

// The statuses. OK, Empty and Absent are answers: the source was looked at, and this is what there is.
// The others mean "could not look", which must never be shown as "not there".
const (
	OK           Status = "ok"
	Empty        Status = "empty"
	Absent       Status = "absent" // this node has no such thing
	NotCollected Status = "not-collected"
	Unsupported  Status = "unsupported"
	Denied       Status = "denied"
	Failed       Status = "failed"
	Truncated    Status = "truncated"
)

// Answers tells whether the status is an answer.
func (s Status) Answers() bool { return s == OK || s == Empty || s == Absent }

// Format is what a piece of evidence is: the command or object that prints text like it.
type Format string

// The formats that are recognised. The second block belongs to dataplanes that are not read yet.
const (
	IPTablesSave   Format = "iptables-save"
	IPTablesRules  Format = "iptables -S"
	IPTablesList   Format = "iptables -L"
	Objects        Format = "kubernetes objects"
	ProxyLog       Format = "kube-proxy log"
	ProxyConfig    Format = "kube-proxy config"
	ProxyConfigz   Format = "kube-proxy /configz"
	ProxyHealthz   Format = "kube-proxy /healthz"
	ProxyMetrics   Format = "kube-proxy /metrics"
	ProxyMode      Format = "kube-proxy /proxyMode"
	ProxyArgs      Format = "kube-proxy arguments"
	IPAddr         Format = "ip addr"
	IPLink         Format = "ip link"
	IPRoute        Format = "ip route"
	IPRule         Format = "ip rule"
	Sysctl         Format = "sysctl"
	Conntrack      Format = "conntrack -L"
	ConntrackStats Format = "conntrack -S"
	SocketList     Format = "ss"
	XTRecent       Format = "xt_recent"
	Uname          Format = "uname"
	Dmesg          Format = "dmesg"
	Ethtool        Format = "ethtool -k"
	Bridge         Format = "brctl show"
	CNIConfig      Format = "CNI configuration"
	CNILog         Format = "CNI log"
	Kubeconfig     Format = "kubeconfig"
	APIServerFlags Format = "kube-apiserver flags"
	BridgeLink     Format = "bridge link"
	Hairpin        Format = "bridge hairpin_mode"
	ToolVersions   Format = "tool versions"
	Unrecognised   Format = ""

	NFTText    Format = "nft list ruleset"
	NFTJSON    Format = "nft -j list ruleset"
	NFTNetlink Format = "nf_tables netlink"
	IPSetSave  Format = "ipset save"
	IPSetList  Format = "ipset list"
	IPVSSave   Format = "ipvsadm -S"
	IPVSList   Format = "ipvsadm -L"
	IPVSConns  Format = "ipvsadm -Lc"
	CiliumText Format = "cilium output"
	CalicoBPF  Format = "calico-bpf output"
	WindowsHNS Format = "HNS output"
	BPFMap     Format = "bpftool map dump"
	Events     Format = "kubectl get events"
)

// Evidence is one captured piece.
type Evidence struct {
	Format Format
	// Family is 4 or 6 where content or name tell, else 0.
	Family int
	// Backend is "legacy" or "nft" for iptables captures where content or name tell, else empty.
	Backend string
	// File is the name to show: relative to what the user named, with forward slashes; "-" for standard
	// input. Never an absolute path that the user did not type. For a file inside an archive,
	// "archive.tar.gz:inner/path".
	File string
	// Data is what was read, byte for byte. It is never changed once it is evidence: Text shares its memory.
	Data []byte
	// Status with Error as one line that says what was tried, why it failed and what to do next.
	Status Status
	Error  string
	// Note is a remark on evidence that was read all the same, as "converted from UTF-16"; mostly empty.
	Note string
}

// Text is Data as a string that shares its memory. Rules and objects of a large cluster are a hundred megabytes, and
// parsers keep parts of them.
func (e *Evidence) Text() string { return unsafe.String(unsafe.SliceData(e.Data), len(e.Data)) }

// Snapshot is all evidence of one node at one moment.
type Snapshot struct {
	// Node is the node's name where a bundle's manifest or the user says it.
	Node string
	// Tool and Captured are the program's version and the capture time (RFC 3339) as the collector gave
	// them and a bundle's manifest keeps them; empty for loose files.
	Tool, Captured string
	// Evidence sorted by File, then Format. One File holds several pieces where a paste or a capture holds
	// the output of several commands; blank lines stand for the others, so that line numbers stay true.
	Evidence []Evidence
}

// Of returns the evidence of one format, whatever its status, in the order of the snapshot.
func (s *Snapshot) Of(f Format) []Evidence {
	var out []Evidence
	for _, e := range s.Evidence {
		if e.Format == f {
			out = append(out, e)
		}
	}
	return out
}

// Arrange puts evidence in the order that Snapshot promises. Pieces that agree in every key keep the
// order in which they stood in their file.
func (s *Snapshot) Arrange() {
	slices.SortStableFunc(s.Evidence, func(a, b Evidence) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Format, b.Format),
			cmp.Compare(a.Family, b.Family),
			cmp.Compare(a.Backend, b.Backend),
		)
	})
}
