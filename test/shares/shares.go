// Package shares judges whether counted connections go together with predicted shares.
package shares

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// How shares are judged: by Pearson's chi-square over Connections connections. There are fewer than 50 tests of
// shares in one run, each with a false alarm rate of alpha, so the rate of all is below 1e-6. An error of 0.1 in one
// share is hardest to see where two shares are 1/2: it gives a non-centrality of 2000 × (0.1²/0.5 + 0.1²/0.5) = 80, and
// the critical value at alpha for one degree of freedom is 31.3, so it is seen with probability
// Φ(√80 − √31.3) > 0.999. TestSharesSeeAnError checks this by simulation for every number of backends.
const (
	Connections = 2000
	alpha       = 2e-8
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

// Improbable compares counts with shares, and says why they do not go together, empty when they do.
func Improbable(counts map[string]int, shares map[string]float64) string {
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
	if p := chiSquareP(x, len(shares)-1); p < alpha {
		return fmt.Sprintf("chi-square %.1f with %d degrees of freedom has probability %.2g: got %v for shares %v", x, len(shares)-1, p, counts, shares)
	}
	return ""
}
