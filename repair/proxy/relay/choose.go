package relay

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// choose picks a backend for a client: the one that it had before, where the service remembers that, else any of the
// targets with the same chance for each. Those in tried are not taken, those that failed lately only where there is no
// other. nil: there is none left.
func (r *route) choose(v *verdict, client netip.Addr, tried []*backend, now int64, trial time.Duration) *backend {
	if len(v.targets) == 0 {
		return nil
	}
	if r.remembers > 0 && len(tried) == 0 {
		if b := r.before(v, client, now, trial); b != nil {
			return b
		}
	}
	b := pick(v.targets, tried, now, trial)
	if b != nil && r.remembers > 0 {
		r.service.affinity.remember(client, b.addr, now)
	}
	return b
}

// before is the backend that the client had, where it may still be used. Its time starts anew.
func (r *route) before(v *verdict, client netip.Addr, now int64, trial time.Duration) *backend {
	addr, ok := r.service.affinity.of(client, now, r.remembers)
	if !ok {
		return nil
	}
	for _, b := range v.targets {
		if b.addr == addr && b.usable(now, trial) {
			r.service.affinity.remember(client, addr, now)
			return b
		}
	}
	return nil
}

// guesses is how often pick tries its luck before it looks at all targets.
const guesses = 4

func pick(targets, tried []*backend, now int64, trial time.Duration) *backend {
	// Nearly always every backend is well, and the first guess is taken. Guessing until one fits chooses among those
	// that fit with the same chance for each, as looking at all of them does.
	for range guesses {
		b := targets[rand.IntN(len(targets))]
		if !slices.Contains(tried, b) && b.usable(now, trial) {
			return b
		}
	}
	var well, resting []*backend
	for _, b := range targets {
		switch {
		case slices.Contains(tried, b):
		case b.resting():
			resting = append(resting, b)
		default:
			well = append(well, b)
		}
	}
	// A backend that is resting is better than none: the memory is of what was, and may be wrong.
	for _, from := range [][]*backend{well, resting} {
		if len(from) > 0 {
			return from[rand.IntN(len(from))]
		}
	}
	return nil
}
