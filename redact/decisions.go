package redact

import (
	"regexp"
	"slices"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// A decision says what becomes of evidence of one format: how its text is rewritten, or why it is left out.
type decision struct {
	format  snapshot.Format
	rewrite func(r *renaming, data string) (string, error)
	// why the format is left out, as words that can follow "left out: ".
	why string
}

// notRead is the reason for formats that svcnet does not evaluate: what it cannot read it cannot redact.
const notRead = "this program does not read it, and so cannot say what in it is a name"

// decisions are those of every format, in the order of the formats.
var decisions = []decision{
	{format: snapshot.IPTablesSave, rewrite: always((*renaming).rules)},
	{format: snapshot.IPTablesRules, rewrite: always((*renaming).rules)},
	{format: snapshot.IPTablesList, rewrite: always((*renaming).rules)},
	{format: snapshot.Objects, rewrite: always((*renaming).document)},
	{format: snapshot.ProxyLog, rewrite: always((*renaming).log)},
	{format: snapshot.ProxyConfig, rewrite: always((*renaming).document)},
	{format: snapshot.ProxyConfigz, rewrite: always((*renaming).document)},
	{format: snapshot.ProxyHealthz, rewrite: always((*renaming).document)},
	{format: snapshot.ProxyMetrics, rewrite: always((*renaming).metrics)},
	{format: snapshot.ProxyMode, rewrite: always((*renaming).lines)},
	{format: snapshot.ProxyArgs, rewrite: always((*renaming).flags)},
	{format: snapshot.IPAddr, rewrite: always((*renaming).devices)},
	{format: snapshot.IPLink, rewrite: always((*renaming).devices)},
	{format: snapshot.IPRoute, rewrite: always((*renaming).devices)},
	{format: snapshot.IPRule, rewrite: always((*renaming).devices)},
	{format: snapshot.Sysctl, rewrite: always((*renaming).sysctls)},
	{format: snapshot.Conntrack, rewrite: always((*renaming).lines)},
	{format: snapshot.ConntrackStats, rewrite: always((*renaming).lines)},
	{format: snapshot.SocketList, rewrite: always((*renaming).lines)},
	{format: snapshot.XTRecent, rewrite: always((*renaming).lines)},
	{format: snapshot.Uname, rewrite: always((*renaming).uname)},
	{format: snapshot.Dmesg, rewrite: always((*renaming).log)},
	{format: snapshot.Ethtool, rewrite: always((*renaming).lines)},
	{format: snapshot.Bridge, rewrite: always((*renaming).lines)},
	{format: snapshot.CNIConfig, rewrite: always((*renaming).document)},
	{format: snapshot.CNILog, rewrite: always((*renaming).log)},
	{format: snapshot.Kubeconfig, rewrite: always((*renaming).document)},
	{format: snapshot.APIServerFlags, rewrite: always((*renaming).flags)},
	{format: snapshot.BridgeLink, rewrite: always((*renaming).devices)},
	{format: snapshot.Hairpin, rewrite: always((*renaming).lines)},
	{format: snapshot.ToolVersions, rewrite: always((*renaming).lines)},
	{format: snapshot.Unrecognised, why: "nothing says what it is"},
	{format: snapshot.NFTText, rewrite: always((*renaming).nftText)},
	{format: snapshot.NFTJSON, rewrite: always((*renaming).nftJSON)},
	{format: snapshot.NFTNetlink, rewrite: (*renaming).netlink},
	{format: snapshot.IPSetSave, rewrite: always((*renaming).nftText)},
	{format: snapshot.IPSetList, rewrite: always((*renaming).nftText)},
	{format: snapshot.IPVSSave, rewrite: always((*renaming).lines)},
	{format: snapshot.IPVSList, rewrite: always((*renaming).lines)},
	{format: snapshot.IPVSConns, rewrite: always((*renaming).lines)},
	{format: snapshot.CiliumText, rewrite: always((*renaming).cilium)},
	{format: snapshot.CalicoBPF, rewrite: always((*renaming).calico)},
	{format: snapshot.WindowsHNS, rewrite: always((*renaming).hns)},
	{format: snapshot.BPFMap, why: notRead},
	{format: snapshot.Events, why: notRead},
}

// always makes a decision of what never fails.
func always(f func(r *renaming, data string) string) func(*renaming, string) (string, error) {
	return func(r *renaming, data string) (string, error) { return f(r, data), nil }
}

// decisionOf is what becomes of a format.
func decisionOf(f snapshot.Format) decision {
	for _, d := range decisions {
		if d.format == f {
			return d
		}
	}
	return decision{format: f, why: "nobody has decided how it is redacted"}
}

// document rewrites JSON or YAML.
func (r *renaming) document(data string) string {
	body := strings.TrimLeft(strings.TrimPrefix(data, "\ufeff"), " \t\r\n")
	if strings.HasPrefix(body, "{") && !yamlFlow.MatchString(body) || strings.HasPrefix(body, "[") {
		return r.json(data, r.objectStrings())
	}
	return r.yaml(data)
}

// yamlFlow is a flow collection of YAML, whose keys have no quotes.
var yamlFlow = regexp.MustCompile(`^\{\s*[A-Za-z]`)

// nftJSON rewrites the JSON of nft.
func (r *renaming) nftJSON(data string) string {
	var raw packetBytes // of the statement at hand
	return r.json(data, documentStrings{
		key: func(k string, _ place) string {
			if k == "match" || k == "mangle" {
				raw = packetBytes{}
			}
			return r.text(k, grammar)
		},
		bare: func(s string, at place) string {
			switch at.last() {
			case "offset":
				raw.offset = s
			case "len":
				if slices.Contains(at, "payload") {
					raw.length = s
				}
			default:
				if raw.base != "" {
					return r.packetNumber(s, raw)
				}
			}
			return r.text(s, name)
		},
		value: func(s string, at place) string {
			switch at.last() {
			case "base":
				if s != "th" {
					raw.base = s
				}
			case "comment":
				return r.comment(s)
			case "prefix":
				return r.text(s, name) // of a log message; that of an address is an object
			}
			return r.text(s, grammar)
		},
	})
}

// hns rewrites what hnsdiag and PowerShell print of a Windows node.
func (r *renaming) hns(data string) string {
	body := strings.TrimLeft(strings.TrimPrefix(data, "\ufeff"), " \t\r\n")
	if strings.HasPrefix(body, "{") || strings.HasPrefix(body, "[") {
		return r.json(data, r.objectStrings())
	}
	return r.lines(data)
}

// cilium rewrites what svcnet reads of Cilium's output, which is one line. Of the others nothing says what is in them: they
// are empty afterwards, so that this one keeps its number.
func (r *renaming) cilium(data string) string {
	return r.eachLine(data, func(line string) string {
		if !strings.Contains(line, "KubeProxyReplacement") {
			return ""
		}
		return r.prose(line)
	})
}

// serviceEntry is a line of Calico's map of Services, which is all that svcnet reads of its output.
var serviceEntry = regexp.MustCompile(`^\s*[0-9a-fA-F.:]+ port \d+ proto \d+ id \d+ count \d+ local \d+\s*$`)

// calico rewrites the lines of Calico's output that are read, and empties the others.
func (r *renaming) calico(data string) string {
	return r.eachLine(data, func(line string) string {
		if !serviceEntry.MatchString(line) {
			return ""
		}
		return r.text(line, grammar)
	})
}

// hostOf is the second word of `uname -a`, the node's name.
var hostOf = regexp.MustCompile(`^(\s*Linux\s+)(\S+)(\s+\d.*)$`)

func (r *renaming) uname(data string) string {
	return r.eachLine(data, func(line string) string {
		if m := hostOf.FindStringSubmatch(line); m != nil {
			return m[1] + r.text(m[2], name) + r.text(m[3], grammar)
		}
		return r.text(line, grammar)
	})
}

// metrics rewrites metrics in the form of Prometheus.
func (r *renaming) metrics(data string) string {
	return r.eachLine(data, func(line string) string {
		if strings.HasPrefix(line, "#") {
			return r.text(line, prose)
		}
		return r.within(line, namedLabel, host)
	})
}

// namedLabel is a label of metrics whose value is a name or a server.
var namedLabel = regexp.MustCompile(`\b(?:host|hostname|node|nodename|instance|server|url|pod|namespace|service|container|endpoint)="((?:[^"\\]|\\.)*)"`)

// ownName is a setting of the kernel that is the node's name.
var ownName = regexp.MustCompile(`^(.*\bkernel[./](?:hostname|domainname)\s*[=:]\s*)(.*)$`)

// sysctls rewrites settings of the kernel.
func (r *renaming) sysctls(data string) string {
	return r.eachLine(data, func(line string) string {
		if m := ownName.FindStringSubmatch(line); m != nil {
			return r.text(m[1], grammar) + r.text(m[2], host)
		}
		return r.lines(line)
	})
}

// devices rewrites the output of ip and bridge, where an address with a prefix length is the address of a device.
func (r *renaming) devices(data string) string {
	if deviceJSON.MatchString(data) {
		return r.json(data, documentStrings{
			key: func(k string, _ place) string { return r.text(k, grammar) },
			value: func(s string, at place) string {
				if at.last() == "ifalias" {
					return r.text(s, host)
				}
				return r.text(s, grammar)
			},
		})
	}
	return r.eachLine(data, func(line string) string {
		if m := ownAddress.FindStringSubmatchIndex(line); m != nil {
			return r.text(line[:m[2]], grammar) + r.text(line[m[2]:m[3]], grammar) + r.text(line[m[3]:], grammar)
		}
		if m := alias.FindStringSubmatch(line); m != nil {
			return m[1] + r.text(m[2], host)
		}
		return r.text(line, grammar)
	})
}

// deviceJSON is how the JSON of ip begins; a prompt may begin with a bracket too.
var deviceJSON = regexp.MustCompile(`^\s*(?:\{|\[\s*[{\]])`)

// alias is what somebody wrote about a device.
var alias = regexp.MustCompile(`^(\s+alias )(.*)$`)

// ownAddress is the address of a device, without its prefix length.
var ownAddress = regexp.MustCompile(`^\s+inet6? ([0-9a-fA-F.:]+)/`)
