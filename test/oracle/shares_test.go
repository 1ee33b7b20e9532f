//go:build linux

package oracle

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/svcnet/svcnet/explain/netfilter"
)

// How shares are judged: by Pearson's chi-square over shareConnections connections. There are fewer than 50 tests of
// shares here, each with a false alarm rate of shareAlpha, so the rate of all is below 1e-6. An error of 0.1 in one share is
// hardest to see where two shares are 1/2: it gives a non-centrality of 2000 × (0.1²/0.5 + 0.1²/0.5) = 80, and the
// critical value at shareAlpha for one degree of freedom is 31.3, so it is seen with probability
// Φ(√80 − √31.3) > 0.999. TestSharesSeeAnError checks this by simulation for every number of backends.
const (
	shareConnections = 2000
	shareAlpha       = 2e-8
)

// chiSquareP is the probability that a chi-square variable with df degrees of freedom is at least x: the regularized
// upper incomplete gamma function Q(df/2, x/2).
func chiSquareP(x float64, df int) float64 {
	a := float64(df) / 2
	x /= 2
	if x <= 0 {
		return 1
	}
	lg, _ := math.Lgamma(a)
	scale := math.Exp(-x + a*math.Log(x) - lg)
	if x < a+1 { // series for P
		sum, term := 1/a, 1/a
		for n := a + 1; term > sum*1e-15; n++ {
			term *= x / n
			sum += term
		}
		return 1 - sum*scale
	}
	// continued fraction for Q, by Lentz's method
	b := x + 1 - a
	c, d := 1e300, 1/b
	h := d
	for i := 1.0; i < 10000; i++ {
		n := -i * (i - a)
		b += 2
		d = 1 / (n*d + b)
		c = b + n/c
		h *= c * d
		if math.Abs(c*d-1) < 1e-15 {
			break
		}
	}
	return scale * h
}

// improbable compares counts with shares, and says why they do not go together, empty when they do.
func improbable(counts map[string]int, shares map[string]float64) string {
	total := 0
	for k, n := range counts {
		total += n
		if shares[k] == 0 {
			return fmt.Sprintf("%d connections went to %s, which has no share", n, k)
		}
	}
	x := 0.0
	for _, k := range slices.Sorted(maps.Keys(shares)) {
		expected := shares[k] * float64(total)
		if expected < 5 {
			return fmt.Sprintf("expected count of %s is %.1f: too few connections for a test", k, expected)
		}
		x += (float64(counts[k]) - expected) * (float64(counts[k]) - expected) / expected
	}
	if len(shares) < 2 {
		return ""
	}
	if p := chiSquareP(x, len(shares)-1); p < shareAlpha {
		return fmt.Sprintf("chi-square %.1f with %d degrees of freedom has probability %.2g: got %v for shares %v", x, len(shares)-1, p, counts, shares)
	}
	return ""
}

func TestChiSquare(t *testing.T) {
	for _, c := range []struct {
		x    float64
		df   int
		want float64
	}{
		{3.841459, 1, 0.05}, {6.634897, 1, 0.01}, {14.06714, 7, 0.05}, {18.47531, 7, 0.01}, {0, 3, 1}, {1, 2, math.Exp(-0.5)}, {60, 2, math.Exp(-30)},
	} {
		if got := chiSquareP(c.x, c.df); math.Abs(got-c.want) > 1e-6*c.want+1e-16 && math.Abs(got-c.want)/c.want > 1e-5 {
			t.Errorf("P(chi-square with %d >= %g) = %g, want %g", c.df, c.x, got, c.want)
		}
	}
}

// TestSharesSeeAnError draws connections whose shares are wrong by 0.1 in one backend, and as many that are right.
func TestSharesSeeAnError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	const tries = 300
	for n := 2; n <= 8; n++ {
		right, wrong := make(map[string]float64), make([]float64, n)
		for i := range n {
			right[fmt.Sprint(i)] = 1 / float64(n)
			wrong[i] = 1/float64(n) - 0.1/float64(n-1)
		}
		wrong[0] = 1/float64(n) + 0.1
		seen := 0
		for range tries {
			good, bad := make(map[string]int), make(map[string]int)
			for range shareConnections {
				good[fmt.Sprint(r.IntN(n))]++
				u, k := r.Float64(), 0
				for k < n-1 && u >= wrong[k] {
					u -= wrong[k]
					k++
				}
				bad[fmt.Sprint(k)]++
			}
			if why := improbable(good, right); why != "" {
				t.Errorf("%d backends, right shares: %s", n, why)
			}
			if improbable(bad, right) != "" {
				seen++
			}
		}
		if seen < tries*99/100 {
			t.Errorf("%d backends: an error of 0.1 was seen in %d of %d tries only", n, seen, tries)
		}
	}
}

// TestShares sends many connections through ladders of statistic rules and compares where they went with the shares
// of the walk.
func TestShares(t *testing.T) {
	l := requireLab(t)
	if err := l.use(0); err != nil {
		t.Fatal(err)
	}
	type ladder struct {
		name string
		rule func(n, i int) string // the statistic match of backend i of n
	}
	ladders := []ladder{
		{"random", func(n, i int) string {
			return fmt.Sprintf("-m statistic --mode random --probability %.11f", 1/float64(n-i))
		}},
		{"nth", func(n, i int) string { return fmt.Sprintf("-m statistic --mode nth --every %d --packet 0", n-i) }},
		{"uneven", func(n, i int) string {
			return fmt.Sprintf("-m statistic --mode random ! --probability %.11f", 0.5+float64(i)/40)
		}},
	}
	run := 0
	for _, ld := range ladders {
		for n := 2; n <= 8; n++ {
			fam := []netfilter.Family{netfilter.IPv4, netfilter.IPv6}[run%2]
			backend := []netfilter.Backend{netfilter.Legacy, netfilter.NFT}[run/2%2]
			run++
			t.Run(fmt.Sprintf("%s/%d/IPv%d/%s", ld.name, n, fam, backend), func(t *testing.T) {
				rs := empty(fam, backend)
				nat := rs.table("nat")
				backends := make([]netip.Addr, n)
				svc := nat.chain("SVC")
				for i := range n {
					backends[i] = pools[fam].pod[0]
					for range i {
						backends[i] = backends[i].Next()
					}
					rule := fmt.Sprintf("-p udp -j DNAT --to-destination %s", netip.AddrPortFrom(backends[i], 8080))
					if i < n-1 {
						rule = fmt.Sprintf("-p udp %s -j DNAT --to-destination %s", ld.rule(n, i), netip.AddrPortFrom(backends[i], 8080))
					}
					svc.rules = append(svc.rules, rule)
				}
				vip := pools[fam].service[0]
				pre := nat.chain("PREROUTING")
				pre.rules = append(pre.rules, fmt.Sprintf("-d %s -p udp --dport 80 -j SVC", vip))
				saved, err := l.load(fam, false, rs)
				if err != nil {
					t.Fatal(err)
				}
				w, err := l.walker(fam, saved)
				if err != nil {
					t.Fatal(err)
				}
				s := shot{datagram: datagram{src: pools[fam].external[0], dst: vip, proto: netfilter.ProtoUDP, dport: 80, ttl: 64}, srcMAC: [6]byte{2, 0, 0, 0, 9, 0}}
				shares := make(map[string]float64)
				for _, e := range w.Walk(s.packet()) {
					if e.Verdict != netfilter.Forwarded || len(e.Assumed) > 0 {
						t.Errorf("the walk ends otherwise: %s", describe(e))
					}
					shares[e.Packet.Dst.String()] += e.P
				}
				counts := make(map[string]int)
				for first := 0; first < shareConnections; first += 250 {
					var shots []shot
					for i := range 250 {
						s.id, s.sport = l.id(), uint16(10000+first+i)
						shots = append(shots, s)
					}
					obs, err := l.fire(shots)
					if err == nil {
						err = l.await(shots, obs)
					}
					if err != nil {
						t.Fatal(err)
					}
					for _, o := range obs {
						if len(o.left) != 1 {
							t.Fatalf("a connection was lost: %v", o)
						}
						counts[o.left[0].dst.String()]++
					}
				}
				if why := improbable(counts, shares); why != "" {
					t.Error(why)
				}
			})
		}
	}
}
