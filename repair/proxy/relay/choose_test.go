package relay

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"
)

func backendsForTest(n int) []*backend {
	var out []*backend
	for i := range n {
		out = append(out, &backend{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)})
	}
	return out
}

var anyClient = netip.MustParseAddr("192.0.2.7")

// choices is how often a test of shares chooses.
const choices = 20000

// wantEven chooses often and wants every backend as often as the others: within 5.5 standard deviations, which chance
// leaves once in 26 million counts.
func wantEven(t *testing.T, among []*backend, choose func() *backend) {
	t.Helper()
	got := make(map[*backend]int)
	for range choices {
		got[choose()]++
	}
	share := 1 / float64(len(among))
	within := 5.5 * math.Sqrt(choices*share*(1-share))
	for _, b := range among {
		if off := math.Abs(float64(got[b]) - choices*share); off > within {
			t.Errorf("%s was chosen %d times of %d, want %.0f ± %.0f", b.addr, got[b], choices, choices*share, within)
		}
		delete(got, b)
	}
	for b, n := range got {
		t.Errorf("%v was chosen %d times", b, n)
	}
}

func TestChooseIsEven(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			all := backendsForTest(n)
			r, v := &route{service: &service{}}, &verdict{targets: all}
			wantEven(t, all, func() *backend { return r.choose(v, anyClient, nil, 1, time.Second) })
		})
	}
}

// TestChooseAmongTheRest: those that failed, and those that were tried, are left out, and the others get the same share.
func TestChooseAmongTheRest(t *testing.T) {
	all := backendsForTest(6)
	all[0].failed(1)
	all[1].failed(1)
	r, v := &route{service: &service{}}, &verdict{targets: all}
	wantEven(t, all[3:], func() *backend { return r.choose(v, anyClient, all[2:3], 1, time.Second) })
}

func TestChooseNone(t *testing.T) {
	all := backendsForTest(2)
	r := &route{service: &service{}}
	if b := r.choose(&verdict{}, anyClient, nil, 1, time.Second); b != nil {
		t.Error("a backend of no targets")
	}
	if b := r.choose(&verdict{targets: all}, anyClient, all, 1, time.Second); b != nil {
		t.Error("a backend although all were tried")
	}
	// When every backend rests, one is better than none.
	all[0].failed(1)
	all[1].failed(1)
	if b := r.choose(&verdict{targets: all}, anyClient, all[:1], 2, time.Second); b != all[1] {
		t.Error("no backend although one was not tried")
	}
}

func TestRest(t *testing.T) {
	const second = int64(time.Second)
	b := backendsForTest(1)[0]
	now := second
	if !b.usable(now, time.Second) {
		t.Fatal("nothing is held against it")
	}
	for i, rest := range []int64{1, 2, 4, 8, 16, 30, 30} {
		if first := b.failed(now); first != (i == 0) {
			t.Errorf("failure %d is the first one: %v", i+1, first)
		}
		if b.usable(now+rest*second-1, time.Second) {
			t.Errorf("failure %d: used before its rest of %d s is over", i+1, rest)
		}
		now += rest * second
		if !b.usable(now, 5*time.Second) {
			t.Errorf("failure %d: not used after its rest of %d s", i+1, rest)
		}
		if b.usable(now+5*second-1, 5*time.Second) {
			t.Errorf("failure %d: used by others while one tries it", i+1)
		}
	}
	if !b.answered() || b.answered() || !b.usable(now, time.Second) {
		t.Error("an answer does not end it")
	}
}

func TestAffinity(t *testing.T) {
	const second = int64(time.Second)
	all := backendsForTest(5)
	r := &route{service: &service{}, remembers: 10 * time.Second}
	v := &verdict{targets: all}
	now := second
	mine := r.choose(v, anyClient, nil, now, time.Second)
	for range 50 {
		now += 9 * second // each use starts the time anew
		if b := r.choose(v, anyClient, nil, now, time.Second); b != mine {
			t.Fatalf("%s after %s", b.addr, mine.addr)
		}
	}
	// Other clients get others.
	seen := make(map[*backend]bool)
	for i := range 100 {
		seen[r.choose(v, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}), nil, now, time.Second)] = true
	}
	if len(seen) != 5 {
		t.Errorf("100 clients have %d of 5 backends", len(seen))
	}
	// After the time is over it may be any.
	others := 0
	for range 40 {
		now += 10 * second
		if r.choose(v, anyClient, nil, now, time.Second) != mine {
			others++
		}
	}
	if others == 0 {
		t.Error("the backend is remembered for ever")
	}
	// A backend that is not among the targets any more is not used, and one that failed is replaced.
	mine = r.choose(v, anyClient, nil, now, time.Second)
	var without []*backend
	for _, b := range all {
		if b != mine {
			without = append(without, b)
		}
	}
	if b := r.choose(&verdict{targets: without}, anyClient, nil, now, time.Second); b == mine {
		t.Error("a backend that is gone is used")
	}
	mine = r.choose(v, anyClient, nil, now, time.Second)
	mine.failed(now)
	second1 := r.choose(v, anyClient, nil, now, time.Second)
	if second1 == mine {
		t.Error("a backend that failed is used")
	}
	mine.answered()
	if b := r.choose(v, anyClient, nil, now, time.Second); b != second1 {
		t.Error("the client went back to the backend that had failed")
	}
}

// TestAffinityIsBounded: more clients than are remembered push out those that were seen longest ago.
func TestAffinityIsBounded(t *testing.T) {
	var a affinity
	b := backendsForTest(1)[0].addr
	client := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range maxAffinity + 1000 {
		a.remember(client(i), b, int64(i+1))
	}
	if n := a.size(); n != maxAffinity {
		t.Errorf("%d are remembered", n)
	}
	if _, ok := a.of(client(999), maxAffinity+1001, time.Hour); ok {
		t.Error("the oldest is still there")
	}
	if _, ok := a.of(client(1000), maxAffinity+1001, time.Hour); !ok {
		t.Error("one is gone that had its place")
	}
	for range 2 * maxAffinity / 64 {
		a.of(client(0), int64(time.Hour), time.Minute)
	}
	if n := a.size(); n != 0 {
		t.Errorf("%d are remembered after their time is over", n)
	}
}
