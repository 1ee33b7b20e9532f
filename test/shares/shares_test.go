package shares

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

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
			for range Connections {
				good[fmt.Sprint(r.IntN(n))]++
				u, k := r.Float64(), 0
				for k < n-1 && u >= wrong[k] {
					u -= wrong[k]
					k++
				}
				bad[fmt.Sprint(k)]++
			}
			if why := Improbable(good, right); why != "" {
				t.Errorf("%d backends, right shares: %s", n, why)
			}
			if Improbable(bad, right) != "" {
				seen++
			}
		}
		if seen < tries*99/100 {
			t.Errorf("%d backends: an error of 0.1 was seen in %d of %d tries only", n, seen, tries)
		}
	}
}
