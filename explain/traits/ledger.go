package traits

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// rank orders evidence by how directly it speaks of the running proxy. The lowest rank decides.
type rank uint8

const (
	ahead       rank = iota // tables of svcnet's own proxy, which packets meet before what kube-proxy writes
	asked                   // the proxy answered over HTTP
	overridden              // what the proxy does in spite of its configuration: --hostname-override, a fall-back
	configured              // its configuration file
	commandLine             // its command line
	hosted                  // what only one operating system has: load balancers of HNS are made in kernelspace mode alone
	clusterWide             // the ConfigMap, which may have changed since the proxy started
	loggedFlags             // the flags that it logged
	logged                  // what it logged of itself
	inferred                // what a log line shows by the way
	ruled                   // the rules in the kernel, which may be another proxy's
	served                  // virtual servers of IPVS, which other programs make too
	stated                  // API objects
	assumed                 // a default
)

// claim is one piece of evidence for one trait. key is the name of the fact, with the address family or the
// proxy mode where the trait has one value for each.
type claim struct {
	key  string
	rank rank
	Fact
}

// ledger collects claims. Of several claims with one key and rank the last one counts: a log or a rule set is
// read from old to new.
type ledger struct {
	claims []claim
	at     map[claimID]int
}

type claimID struct {
	key, value string
	rank       rank
}

func (l *ledger) add(key string, r rank, f Fact) {
	id := claimID{key, f.Value, r}
	if i, ok := l.at[id]; ok {
		// The same again, further down: remember the later place, so that "last one counts" holds.
		l.claims[i].key = ""
	}
	if l.at == nil {
		l.at = make(map[claimID]int)
	}
	f.Text = clip(f.Text)
	l.at[id] = len(l.claims)
	l.claims = append(l.claims, claim{key, r, f})
}

// maxContradictions bounds how many facts may contradict one trait; a log of a hundred restarts repeats itself.
const maxContradictions = 8

// settle returns the fact that decides key, followed by those that contradict it, each with a note. It is
// empty when nothing speaks of key.
func (l *ledger) settle(key string) []Fact {
	var cs []claim
	for _, c := range l.claims {
		if c.key == key {
			cs = append(cs, c)
		}
	}
	if len(cs) == 0 {
		return nil
	}
	slices.Reverse(cs) // the last one of a rank first
	slices.SortStableFunc(cs, func(a, b claim) int { return cmp.Compare(a.rank, b.rank) })
	facts := []Fact{cs[0].Fact}
	for _, c := range cs[1:] {
		if c.Value == cs[0].Value || len(facts) > maxContradictions || c.rank == assumed {
			continue
		}
		c.Note = "not used: " + against(cs[0], c)
		facts = append(facts, c.Fact)
	}
	return facts
}

// against says why the claim that lost counts less.
func against(won, lost claim) string {
	if won.rank == lost.rank {
		return "said earlier than the value in use"
	}
	return rankNames[won.rank] + " counts more than " + rankNames[lost.rank]
}

var rankNames = [...]string{
	ahead:       "what packets meet first",
	asked:       "the proxy's own answer",
	overridden:  "what the proxy does in spite of its configuration",
	configured:  "the configuration file",
	commandLine: "the command line",
	hosted:      "what HNS holds",
	clusterWide: "the ConfigMap",
	loggedFlags: "the logged command line",
	logged:      "the log",
	inferred:    "a remark in the log",
	ruled:       "the rules",
	served:      "the virtual servers",
	stated:      "the API objects",
	assumed:     "the default",
}

// clipAt is the longest text that a fact keeps, in bytes.
const clipAt = 400

// clip cuts a text that is too long to show, at a character.
func clip(s string) string {
	if len(s) <= clipAt {
		return s
	}
	n := clipAt
	for n > clipAt-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
