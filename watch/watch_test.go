package watch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/report"
)

// A play is a run of the loop in made-up time, of a node without a proxy.
type play struct {
	notices chan collectors.Notice
	answers chan error
	reads   int
	fulls   int
	fail    error
	// takes is how long a reading takes.
	takes  time.Duration
	events []report.NodeEvent
}

// perform runs the loop while act acts, and returns how it ended.
func perform(t *testing.T, act func(p *play)) *play {
	t.Helper()
	p := &play{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p.notices, p.answers = make(chan collectors.Notice, 1000), make(chan error, 1)
		n := Node{Notices: p.notices, Answers: p.answers, Changes: make(chan collectors.Change), Read: func(_ context.Context, _ []snapshot.Evidence, full bool) (*snapshot.Snapshot, error) {
			time.Sleep(p.takes)
			p.reads++
			if full {
				p.fulls++
			}
			if p.fail != nil {
				return nil, p.fail
			}
			return &snapshot.Snapshot{Node: "n1", Evidence: []snapshot.Evidence{{File: "v4", Format: snapshot.IPTablesSave, Family: 4, Status: snapshot.Empty}}}, nil
		}}
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, n, Options{Metrics: NewMetrics("v", time.Hour)}, func(e report.NodeEvent) error { p.events = append(p.events, e); return nil })
		}()
		act(p)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
	return p
}

// TestIdle: where nothing happens the node is read once a minute, its rules once in ten.
func TestIdle(t *testing.T) {
	p := perform(t, func(*play) { time.Sleep(30*time.Minute + time.Second) })
	// What the first reading finds may settle, and is looked at again.
	if p.reads < 31 || p.reads > 33 || p.fulls < 3 || p.fulls > 4 {
		t.Errorf("%d readings, %d of them full", p.reads, p.fulls)
	}
	if len(p.events) == 0 || p.events[0].Type != report.EventStarted || p.events[0].Node != "n1" {
		t.Errorf("events %+v", p.events)
	}
	for _, e := range p.events[1:] {
		if e.Type == report.EventStarted || e.Type == report.EventCleared || e.Type == report.EventSource {
			t.Errorf("%+v, where nothing happened", e)
		}
	}
}

// TestBusy: where rules change all the time the node is read every two seconds, and for a fifth of the time at most.
func TestBusy(t *testing.T) {
	flood := func(takes time.Duration) *play {
		return perform(t, func(p *play) {
			p.takes = takes
			for range 6000 {
				select {
				case p.notices <- collectors.Notice{At: time.Now()}:
				default:
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	if p := flood(0); p.reads < 28 || p.reads > 32 {
		t.Errorf("%d readings in a minute", p.reads)
	}
	if p := flood(2 * time.Second); p.reads < 5 || p.reads > 7 {
		t.Errorf("%d readings of 2 s in a minute", p.reads)
	}
}

// TestFailing: an audit that fails is told once, and so is one that does not any more. The first one ends it.
func TestFailing(t *testing.T) {
	p := perform(t, func(p *play) {
		time.Sleep(90 * time.Second)
		p.fail = errors.New("no\nsuch thing")
		time.Sleep(5 * time.Minute)
		p.fail = nil
		time.Sleep(5 * time.Minute)
	})
	var told []string
	for _, e := range p.events {
		if e.Source != nil && e.Source.Name == "audit" {
			told = append(told, e.Before+" to "+e.Source.Status)
			if strings.Contains(e.Text, "\n") {
				t.Errorf("%q", e.Text)
			}
		}
	}
	if strings.Join(told, ", ") != "ok to failed, failed to ok" {
		t.Errorf("told %q", told)
	}
	wrong := errors.New("not a node")
	err := Run(t.Context(), Node{Read: func(context.Context, []snapshot.Evidence, bool) (*snapshot.Snapshot, error) { return nil, wrong }},
		Options{}, func(report.NodeEvent) error { return nil })
	if !errors.Is(err, wrong) {
		t.Errorf("a first audit that fails: %v", err)
	}
	// Whoever reads the events has gone.
	gone := errors.New("broken pipe")
	err = Run(t.Context(), Node{Read: func(context.Context, []snapshot.Evidence, bool) (*snapshot.Snapshot, error) {
		return &snapshot.Snapshot{}, nil
	}},
		Options{}, func(report.NodeEvent) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("events that nobody takes: %v", err)
	}
}

// TestSilence: an API server that does not answer for a while is told at the time, without anything else that happens.
func TestSilence(t *testing.T) {
	var at time.Duration
	p := perform(t, func(p *play) {
		time.Sleep(10 * time.Second)
		begun := time.Now()
		p.answers <- errors.New("refused")
		time.Sleep(20 * time.Second)
		for _, e := range p.events {
			if e.Source != nil && e.Source.Name == "api" {
				when, err := time.Parse(time.RFC3339Nano, e.Time)
				if err != nil {
					t.Error(err)
				}
				at = when.Sub(begun)
			}
		}
		p.answers <- nil
		time.Sleep(time.Second)
	})
	if at != silence {
		t.Errorf("told after %s, want %s", at, silence)
	}
	if last := p.events[len(p.events)-1]; last.Source == nil || last.Source.Name != "api" || last.Source.Status != "ok" || last.ObjectsOf != "" {
		t.Errorf("%+v", last)
	}
}

// TestLate: only of rules of nf_tables the kernel tells at once.
func TestLate(t *testing.T) {
	netlink, poll := collectors.Noticing{NFT: "netlink", Poll: time.Second}, collectors.Noticing{NFT: "poll", Poll: time.Second}
	for _, tt := range []struct {
		how           collectors.Noticing
		mode, backend string
		want          time.Duration
	}{
		{netlink, "nftables", "", 0},
		{netlink, "iptables", "nft", 0},
		{netlink, "iptables", "legacy", 2 * time.Second},
		{netlink, "iptables", "", 2 * time.Second},
		{netlink, "ipvs", "nft", 2 * time.Second},
		{poll, "nftables", "", 2 * time.Second},
	} {
		if got := late(tt.how, report.Proxy{Mode: tt.mode, Backend: tt.backend}); got != tt.want {
			t.Errorf("%s %s by %s: %s, want %s", tt.mode, tt.backend, tt.how.NFT, got, tt.want)
		}
	}
}
