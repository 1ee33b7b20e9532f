package dataplane

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/nft"
)

// sharedChains are those in which kube-proxy keeps one rule or a few for each frontend of each Service.
var sharedChains = []struct{ table, chain string }{
	{"nat", "KUBE-SERVICES"},
	{"nat", "KUBE-NODEPORTS"},
	{"filter", "KUBE-SERVICES"},
	{"filter", "KUBE-EXTERNAL-SERVICES"},
	{"filter", "KUBE-NODEPORTS"},
	{"filter", "KUBE-PROXY-FIREWALL"},
}

// perService tells the chains that belong to one service port or endpoint.
func perService(chain string) bool {
	return strings.HasPrefix(chain, SEPPrefix) || perServiceID(chain) != ""
}

// Shapes writes down the rules of service ports in a form in which those that differ in nothing but names and addresses
// read the same. Two service ports with the same shape fare alike as far as their own rules decide.
type Shapes struct {
	rulesets []*netfilter.Ruleset
	shared   []sharedChain
	// named are the destinations that rules of shared chains of the filter table name: a backend that is one of them
	// meets rules that are none of its Service's.
	addrs map[netip.Addr]bool
	ports map[protoPort]bool
	nft   nftShapes

	port   *intent.ServicePort
	out    []byte
	chains []string
	backs  []backendText
	// Endpoints are the numbers by which the shape that was made last names endpoints.
	Endpoints Numbering
}

type sharedChain struct {
	family netfilter.Family
	table  *netfilter.Table
	chain  *netfilter.Chain
}

type protoPort struct {
	proto uint8
	port  uint16
}

// backendText is an endpoint as rules print it.
type backendText struct{ addr, both string }

// NewShapes looks through rulesets once. general and native are told each rule that is none of a single Service's.
func NewShapes(rulesets []*netfilter.Ruleset, tables []*nft.Ruleset, general func(*netfilter.Rule), native func(*nft.Table, *nft.Rule)) *Shapes {
	s := &Shapes{rulesets: rulesets, addrs: make(map[netip.Addr]bool), ports: make(map[protoPort]bool), nft: newNFTShapes(tables, native)}
	for _, rs := range rulesets {
		for _, t := range rs.Tables {
			for _, c := range t.Chains {
				if perService(c.Name) {
					continue
				}
				shared := s.share(rs, t, c)
				for i := range c.Rules {
					r := &c.Rules[i]
					addr, proto, port, hasAddr, hasProto, hasPort := r.ExactDst()
					ofService := shared && (hasAddr || hasProto && hasPort)
					if !ofService {
						general(r)
					} else if t.Name == "filter" {
						if hasAddr {
							s.addrs[addr] = true
						} else {
							s.ports[protoPort{proto, port}] = true
						}
					}
				}
			}
		}
	}
	return s
}

func (s *Shapes) share(rs *netfilter.Ruleset, t *netfilter.Table, c *netfilter.Chain) bool {
	for _, sc := range sharedChains {
		if sc.table == t.Name && sc.chain == c.Name {
			s.shared = append(s.shared, sharedChain{rs.Family, t, c})
			return true
		}
	}
	return false
}

// Of appends the shape of a service port to out. ok is false for a port whose rules cannot be told apart from those of
// others: one of its backends is itself named by rules.
func (s *Shapes) Of(out []byte, sp *intent.ServicePort) (shape []byte, ok bool) {
	s.port, s.out, s.chains, s.backs = sp, out, s.chains[:0], s.backs[:0]
	s.Endpoints.reset(len(sp.Endpoints))
	proto := ProtocolNumber(sp.Protocol)
	for i := range sp.Endpoints {
		e := &sp.Endpoints[i]
		if s.addrs[e.Addr] || s.ports[protoPort{proto, uint16(e.Port)}] {
			return s.out, false
		}
		s.backs = append(s.backs, backendText{e.Addr.String(), e.String()})
	}
	nodePort := false
	for _, f := range sp.Frontends {
		if f.Kind == intent.NodePort && nodePort {
			continue // the rules are the same at every address of the node
		}
		nodePort = nodePort || f.Kind == intent.NodePort
		p := proto
		if f.Kind == intent.HealthCheck {
			p = netfilter.ProtoTCP
		}
		s.frontend(f, p)
	}
	return s.nft.of(s.out, sp, &s.Endpoints)
}

// frontend writes the rules of all shared chains that packets to a frontend may meet.
func (s *Shapes) frontend(f intent.Frontend, proto uint8) {
	addr, port := f.Addr.String(), strconv.Itoa(f.Port)
	for _, sc := range s.shared {
		if int(sc.family) != s.port.Family {
			continue
		}
		s.out = append(s.out, '\n', '#')
		for _, i := range sc.chain.Candidates(f.Addr, proto, uint16(f.Port)) {
			r := &sc.chain.Rules[i]
			a, pr, po, hasAddr, hasProto, hasPort := r.ExactDst()
			switch {
			case !hasAddr && !(hasProto && hasPort):
				s.out = append(s.out, 'g') // the same rule for all
			case hasAddr && a != f.Addr || hasProto && pr != proto || hasPort && po != uint16(f.Port):
			default:
				s.rule(sc.table, r, addr, port)
			}
		}
	}
}

// rule writes one rule with names and addresses replaced by what they are to the service port, and the chains that it
// leads to.
func (s *Shapes) rule(t *netfilter.Table, r *netfilter.Rule, addr, port string) {
	s.out = append(s.out, '\n')
	text := r.Text
	option := ""
	var leads []string
	for len(text) > 0 {
		word := text
		if i := strings.IndexByte(text, ' '); i >= 0 {
			word, text = text[:i], text[i+1:]
		} else {
			text = ""
		}
		switch option {
		case "-A":
			word = ""
		case "--comment":
			// The comment names the Service and may hold anything.
			text = afterQuoted(word, text)
			word = ""
		case "-s", "-d":
			word = s.address(word, addr)
		case "--dport":
			if word == port {
				word = "P"
			}
		case "--to-destination":
			word = s.backend(word)
		case "-j", "-g", "--name":
			if perService(word) {
				if option != "--name" {
					leads = append(leads, word)
				}
				s.out = append(s.out, ' ', '@')
				s.out = strconv.AppendInt(s.out, int64(s.chainNumber(word)), 10)
				option = ""
				continue
			}
		}
		option = word
		if word != "" && word != "-A" {
			s.out = append(append(s.out, ' '), word...)
		}
	}
	for _, name := range leads {
		s.chain(t, name, addr, port)
	}
}

// afterQuoted is what follows the value of a comment that begins with word.
func afterQuoted(word, rest string) string {
	if !strings.HasPrefix(word, `"`) {
		return rest
	}
	closes := func(s string) bool { return strings.HasSuffix(s, `"`) && !strings.HasSuffix(s, `\"`) }
	if len(word) > 1 && closes(word) {
		return rest
	}
	for len(rest) > 0 {
		var w string
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			w, rest = rest[:i], rest[i+1:]
		} else {
			w, rest = rest, ""
		}
		if closes(w) {
			break
		}
	}
	return rest
}

// address is what an address in -s or -d is to the port: its frontend, one of its endpoints, or itself.
func (s *Shapes) address(word, frontend string) string {
	host, bits, _ := strings.Cut(word, "/")
	if bits != "" && bits != "32" && bits != "128" {
		return word
	}
	if host == frontend {
		return "F"
	}
	for i := range s.backs {
		if s.backs[i].addr == host {
			return endpointWords[min(s.Endpoints.Number(i), len(endpointWords)-1)]
		}
	}
	return word
}

// backend is which of the port's endpoints a destination is, or itself.
func (s *Shapes) backend(word string) string {
	for i := range s.backs {
		if s.backs[i].both != word {
			continue
		}
		if n := s.Endpoints.Number(i); n < len(endpointWords)-1 {
			return endpointWords[n]
		}
		break
	}
	return word
}

// endpointWords stand for the endpoints by number. A Service with more of them is written with their addresses.
var endpointWords = func() []string {
	out := make([]string, 257)
	for i := range out {
		out[i] = "E" + strconv.Itoa(i)
	}
	out[len(out)-1] = "E?"
	return out
}()

// chainNumber numbers per-service chains in the order in which they are met.
func (s *Shapes) chainNumber(name string) int {
	for i, c := range s.chains {
		if c == name {
			return i
		}
	}
	s.chains = append(s.chains, name)
	return len(s.chains) - 1
}

// chain writes a per-service chain, once.
func (s *Shapes) chain(t *netfilter.Table, name, addr, port string) {
	mark := t.Name + " " + name
	for _, c := range s.chains {
		if c == mark {
			return
		}
	}
	s.chains = append(s.chains, mark)
	c := t.Chain(name)
	if c == nil {
		s.out = append(s.out, " missing"...)
		return
	}
	s.out = append(s.out, '{')
	if c.Partial {
		s.out = append(s.out, '?')
	}
	for i := range c.Rules {
		s.rule(t, &c.Rules[i], addr, port)
	}
	s.out = append(s.out, '}')
}
