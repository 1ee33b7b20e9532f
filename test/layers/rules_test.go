package layers

// module is the path of this module.
const module = "github.com/svcnet/svcnet"

// layer says what the packages of one folder may import of this module. A folder stands for itself and all
// below it, unless a longer one in the list fits better.
type layer struct {
	folder string
	// may are folders, each with all below it.
	may    []string
	reason string
}

// layers goes from the leaves up. A package that no line names may not be there: a new folder is a decision,
// and takes a line.
var layers = []layer{
	{"explain/report", nil,
		"the contract is a leaf: who reads documents needs nothing else"},
	{"collectors/snapshot", nil,
		"evidence is a leaf and does not interpret: a parser mended tomorrow reads a bundle of today"},
	{"collectors", []string{"collectors/snapshot"},
		"collectors read and do not interpret"},
	{"explain/paste", nil,
		"what stands in captures beside output, for parsers of every text form"},
	{"explain/nft", []string{"explain/paste"},
		"tables of nftables as data, whichever form they were captured in"},
	{"explain/ipset", []string{"explain/host", "explain/paste"},
		"sets as data; what could not be read is said as it is of the host"},
	{"explain/ipvs", []string{"explain/host", "explain/paste"},
		"virtual servers as data; what could not be read is said as it is of the host"},
	{"explain/hns", nil,
		"load balancers of a Windows node as data"},
	{"explain/netfilter", []string{"explain/host", "explain/nft", "explain/ipset", "explain/ipvs"},
		"the walk is about rules, packets and the node that they meet on; it knows no Service"},
	{"explain/host", []string{"explain/paste"},
		"the state of a node as data, for the walk, the intent and the checks alike"},
	{"explain/objects", nil,
		"decoded API objects, whoever asks for them"},
	{"explain/traits", []string{"explain/netfilter", "explain/nft"},
		"what the proxy is follows from evidence, never from what it ought to do"},
	{"explain/intent", []string{"explain/objects", "explain/traits"},
		"what ought to happen must not look at what does: no rules here"},
	{"explain/dataplane", []string{"explain/netfilter", "explain/nft", "explain/hns", "explain/host", "explain/traits", "explain/intent"},
		"one dataplane in one file, speaking of frontends in the words of intent; comparing is done above"},
	{"explain/check", []string{"explain/intent", "explain/dataplane", "explain/netfilter", "explain/nft", "explain/ipset", "explain/ipvs", "explain/hns", "explain/report", "explain/host", "explain/objects", "explain/traits"},
		"findings compare; they neither read evidence nor print"},
	{"explain/render", []string{"explain/report"},
		"what is shown stands in the report: a renderer that walks rules would show another truth"},
	{"explain/fleet", []string{"explain/report"},
		"many nodes are many reports"},
	{"docs/findings", nil,
		"pages are text, for whoever prints them"},
	{"explain", []string{"explain", "collectors/snapshot"},
		"the facade puts the pure packages together; it reads and prints nothing"},
	{"redact", []string{"explain/dataplane", "explain/nft", "explain/objects", "collectors/snapshot"},
		"redaction renames a snapshot; what names stand for, objects and dataplanes say"},
	{"repair/kubeproxy", []string{"explain"},
		"what kube-proxy writes follows from what the objects ask for"},
	{"repair/plan", []string{"explain", "repair/kubeproxy"},
		"a plan is data made from reports"},
	{"repair", []string{"explain", "repair"},
		"repair acts on what explain says"},
	{"plugin", []string{"collectors"},
		"the cluster side brings snapshots back and does not interpret them"},
	{"probe", []string{"explain", "collectors"},
		"a probe sets real answers beside the prediction"},
	{"watch", []string{"explain", "collectors"},
		"watching is collecting again and explaining again"},
	{"tui/quiet", nil,
		"it has to be ready before the libraries of the interactive view: nothing but the standard library comes earlier"},
	{"tui", []string{"explain", "collectors/snapshot"},
		"the interactive view shows what explain says of what it is handed; it reads nothing itself"},
	{"cmd", []string{""},
		"the command line wires everything together, and nothing imports it"},
	{"hack/reference", []string{"cmd"},
		"the reference of the command line is made from the commands"},
	{"hack", []string{"explain", "collectors/snapshot", "test/scale"},
		"small programs around the repository"},
	{"test", []string{""},
		"tests above all packages"},
}

// pure are the folders whose packages get everything as values: the same evidence gives the same bytes, on a
// node and on a laptop.
var pure = []string{"explain", "redact", "repair/kubeproxy", "repair/plan", "repair/proxy/table"}

// evidenceForTests are the packages from which the core's tests get their input.
var evidenceForTests = []string{"collectors/snapshot", "test/scale"}

// outside are the ways by which a package would reach the world beside its arguments.
var outside = []struct{ path, reason string }{
	{"os", "files, environment and processes are read by cmd and collectors and handed in"},
	{"os/exec", "commands run in collectors"},
	{"io/ioutil", "files are read by cmd and collectors"},
	{"net", "net/netip holds addresses; the core asks no resolver and opens no socket"},
	{"net/http", "the core asks nobody"},
	{"math/rand", "no random order in the output"},
	{"math/rand/v2", "no random order in the output"},
	{"syscall", "the kernel is read in collectors"},
	{"golang.org/x/sys", "the kernel is read in collectors"},
	{"k8s.io/client-go", "objects come from evidence, never from a cluster"},
	{"k8s.io/cli-runtime", "printing and kubeconfig belong to cmd"},
	{"k8s.io/klog", "libraries return errors and do not log"},
	{"log", "libraries return errors and do not log"},
	{"log/slog", "libraries return errors and do not log"},
	{"github.com/vishvananda", "the kernel is read in collectors"},
	{"github.com/cilium/ebpf", "the kernel is read in collectors"},
	{"github.com/ti-mo/conntrack", "the kernel is read in collectors"},
	{"github.com/coreos/go-iptables", "commands run in collectors"},
	{"github.com/moby/ipvs", "the kernel is read in collectors"},
	{"github.com/spf13", "the command line belongs to cmd"},
}

// clocks are the functions of package time that read the clock: ages count from the capture time.
var clocks = []string{"Now", "Since", "Until", "After", "Tick", "Sleep", "NewTimer", "NewTicker"}

// linuxOnly are packages that build, or work, on Linux only.
var linuxOnly = []string{
	"golang.org/x/sys/unix", "github.com/vishvananda", "github.com/ti-mo/conntrack", "github.com/coreos/go-iptables",
	"github.com/moby/ipvs", "github.com/google/nftables", "sigs.k8s.io/knftables", "github.com/mdlayher/netlink",
}

// testOnly are modules that only tests and the programs in hack may use.
var testOnly = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "github.com/santhosh-tekuri/jsonschema",
	"github.com/invopop/jsonschema", "github.com/spf13/cobra/doc", "github.com/charmbracelet/x/exp", "testing",
}

// emptyNames say nothing about what a package is for.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "shared", "types"}
