package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Answers are those of many connections, in no order.
type Answers []Answer

// ByOutcome counts outcomes.
func (a Answers) ByOutcome() map[Outcome]int {
	out := map[Outcome]int{}
	for _, a := range a {
		out[a.Outcome]++
	}
	return out
}

// ByPod counts which pods answered.
func (a Answers) ByPod() map[string]int {
	out := map[string]int{}
	for _, a := range a {
		if a.Outcome == Answered {
			out[a.Pod]++
		}
	}
	return out
}

// ByClient counts the client addresses that the pods saw.
func (a Answers) ByClient() map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for _, a := range a {
		if a.Outcome == Answered {
			out[a.Client.Addr()]++
		}
	}
	return out
}

// Pods are the names of those that answered, sorted.
func (a Answers) Pods() []string {
	var out []string
	for pod := range a.ByPod() {
		out = append(out, pod)
	}
	slices.Sort(out)
	return out
}

// All tells whether every connection ended so.
func (a Answers) All(o Outcome) bool { return len(a) > 0 && a.ByOutcome()[o] == len(a) }

// String sums up, for the message of a test: what each kind of answer was and how often.
func (a Answers) String() string {
	counts := map[string]int{}
	for _, a := range a {
		if a.Outcome == Answered {
			counts[fmt.Sprintf("%s:%d saw %s", a.Pod, a.Port, a.Client.Addr())]++
		} else {
			counts[a.String()]++
		}
	}
	var lines []string
	for what, n := range counts {
		lines = append(lines, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// The source ports of Many: below those that the kernel gives out by itself and those of NodePorts. Each is used
// again only after all others, or conntrack would send the next datagram of a port where it sent the last.
const (
	firstPort  = 10000
	portCount  = 20000
	concurrent = 64
)

// Many connects n times, each from another source port, up to 64 at a time. The first error ends it.
func (l *Lab) Many(ctx context.Context, n int, from Place, proto corev1.Protocol, to netip.AddrPort, o DialOptions) (Answers, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(Answers, n)
	jobs := make(chan int)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var first error
	for range min(n, concurrent) {
		wait.Go(func() {
			for i := range jobs {
				a, err := l.dialFrom(ctx, from, proto, to, o)
				if err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					cancel()
				}
				answers[i] = a
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		jobs <- i
	}
	close(jobs)
	wait.Wait()
	if first == nil {
		first = ctx.Err()
	}
	if first != nil {
		return nil, first
	}
	return answers, nil
}

// dialFrom dials from the next source port that is free there.
func (l *Lab) dialFrom(ctx context.Context, from Place, proto corev1.Protocol, to netip.AddrPort, o DialOptions) (Answer, error) {
	for try := 0; ; try++ {
		o.SourcePort = firstPort + int(l.ports.Add(1)%portCount)
		a, err := l.Dial(ctx, from, proto, to, o)
		taken := errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
		if !taken || try == 100 {
			return a, err
		}
	}
}
