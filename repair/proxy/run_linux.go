package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/proxy/kernel"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// Run serves until ctx ends, the time is over or kube-proxy serves again, and then removes the tables.
func Run(ctx context.Context, c Config) (ending Ending, err error) {
	addrs, err := NodeAddrs()
	if err != nil {
		return "", err
	}
	w, err := kernel.OpenTables()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	// What the kernel lacks is better said before anything is written than after.
	trial := table.NewState(nft.IP, table.FactsOf(&c.Proxy, addrs)).Plan(false)
	if err := w.Try(trial); err != nil {
		return "", fmt.Errorf("the kernel does not take tables of nftables with translation: %w (without them there is --userspace)", err)
	}
	within, stop := context.WithCancel(ctx)
	defer stop()
	changed, err := FollowAddrs(within)
	if err != nil {
		return "", err
	}
	o := Options{Objects: c.Objects, Writer: w, Proxy: c.Proxy, Addrs: addrs, AddrsChanged: changed, Owned: c.Temporary, Log: c.Log}
	var s *Server
	o.Flows = func(of []UDPService) (int, error) { return s.flowsOf(of) }
	o.Health = NewHealthChecks(nil, c.Log)
	o.Started, o.Progress = c.Started, c.Progress
	s = NewServer(o)
	o.Health.SetAddrs(s.NodePortIPs())
	go o.Health.Run(within)
	ended := make(chan Ending, 1)
	go func() { ended <- c.End(within); stop() }()
	if err := s.Serve(within); err != nil {
		return "", err
	}
	ending = <-ended
	if err := s.Remove(); err != nil {
		return ending, fmt.Errorf("remove the tables: %w (svcnet cleanup does it later)", err)
	}
	return ending, nil
}

// End waits for the end of a run, and says what it is: ctx ends, the time is over, or kube-proxy serves again.
func (c *Config) End(ctx context.Context) Ending {
	var over <-chan time.Time
	if c.TTL > 0 {
		t := time.NewTimer(c.TTL)
		defer t.Stop()
		over = t.C
	}
	var ask <-chan time.Time
	if c.Healthy != nil {
		t := time.NewTicker(c.HealthyEvery)
		defer t.Stop()
		ask = t.C
	}
	right, last := 0, ""
	for {
		select {
		case <-ctx.Done():
			return Interrupted
		case <-over:
			return Expired
		case <-ask:
			ok, why := c.Healthy(ctx)
			if !ok {
				right = 0
				if why != last && ctx.Err() == nil {
					c.Log("kube-proxy does not serve yet: %s", why)
				}
				last = why
				continue
			}
			if right++; right == 2 {
				return HandedBack
			}
		}
	}
}

// RemoveLeft deletes tables that a proxy left which was killed. It tells which. folder is that of its lock.
func RemoveLeft(folder string) (removed []string, err error) {
	if !mayHaveRun(folder) {
		return nil, nil
	}
	w, err := kernel.OpenTables()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, f := range families {
		there, err := w.Has(f)
		if err != nil {
			return removed, err
		}
		if !there {
			continue
		}
		if err := w.Remove(f); err != nil {
			return removed, err
		}
		removed = append(removed, fmt.Sprintf("table %s svcnet", f))
	}
	return removed, nil
}

// mayHaveRun tells whether a proxy may have left tables on this machine. To ask the kernel for them would load nf_tables
// where it is not.
func mayHaveRun(folder string) bool {
	for _, sign := range []string{"/sys/module/nf_tables", filepath.Join(folder, "proxy.json")} {
		if _, err := os.Stat(sign); err == nil {
			return true
		}
	}
	return false
}
