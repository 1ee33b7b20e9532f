package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/repair/proxy"
	"github.com/svcnet/svcnet/repair/proxy/relay"
	"github.com/svcnet/svcnet/repair/proxy/table"
	"github.com/svcnet/svcnet/repair/proxy/userspace"
)

// userspaceFlags are what `proxy --userspace` is asked beside the rest.
type userspaceFlags struct {
	on             bool
	reach          string
	listen         []string
	headers        []string
	most           int
	mostPerService int
	connectTimeout time.Duration
	udpTimeout     time.Duration
	drain          time.Duration
	metrics        string
	perService     bool
}

// The names of the flags, which mean nothing without --userspace, and of those that mean nothing with it.
var (
	userspaceOnly = []string{"reach", "listen", "proxy-protocol", "max-connections", "max-connections-per-service", "connect-timeout", "udp-timeout", "drain", "metrics-per-service"}
	kernelOnly    = []string{"temporary", "remove-obstacles", "show-rules", "masquerade-all"}
)

func (f *userspaceFlags) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "userspace", false, "Take connections in this process and pass them on, without any rule: for a node whose netfilter cannot be used")
	fs.StringVar(&f.reach, "reach", "auto", "With --userspace: how packets to service addresses get here: namespace (a network namespace of its own), local (addresses of this node), none, or auto: the first that can be done")
	fs.StringArrayVar(&f.listen, "listen", nil, "With --userspace: serve a Service here too, as ADDRESS:PORT=svc/NAME[:PORT] or ADDRESS:PORT=NAMESPACE/NAME[:PORT] (repeatable)")
	fs.StringArrayVar(&f.headers, "proxy-protocol", nil, "With --userspace: tell backends the client's address by the PROXY protocol: v1, v2, or svc/NAME=v2 for one Service (repeatable)")
	fs.IntVar(&f.most, "max-connections", 0, "With --userspace: most connections of TCP, and most clients of UDP, at one time (default: what the limit of open files allows)")
	fs.IntVar(&f.mostPerService, "max-connections-per-service", 0, "With --userspace: the same for each port of a Service (default: no limit of its own)")
	fs.DurationVar(&f.connectTimeout, "connect-timeout", 2*time.Second, "With --userspace: how long a backend may take to accept a connection before another one is tried")
	fs.DurationVar(&f.udpTimeout, "udp-timeout", 2*time.Minute, "With --userspace: how long a client of UDP that says nothing keeps its backend; a quarter of it where the backend never answered")
	fs.DurationVar(&f.drain, "drain", 30*time.Second, "With --userspace: how long connections may go on at the end")
	fs.StringVar(&f.metrics, "metrics", "", "Address on which to answer Prometheus (/metrics), such as 127.0.0.1:9411")
	fs.BoolVar(&f.perService, "metrics-per-service", false, "With --metrics: of each port of a Service, instead of sums")
}

// check says what does not go together.
func (f *userspaceFlags) check(changed func(string) bool) error {
	if !f.on {
		for _, name := range userspaceOnly {
			if changed(name) {
				return usage("--%s goes with --userspace", name)
			}
		}
		return nil
	}
	for _, name := range kernelOnly {
		if changed(name) {
			return usage("--%s is about rules, and with --userspace none are written: leave one of them out", name)
		}
	}
	switch {
	case f.perService && f.metrics == "":
		return usage("--metrics-per-service goes with --metrics")
	case f.most < 0, f.mostPerService < 0:
		return usage("a limit of connections is not negative")
	case f.connectTimeout < 10*time.Millisecond:
		return usage("--connect-timeout %s is too short: 10ms at least", f.connectTimeout)
	case f.udpTimeout < 100*time.Millisecond:
		return usage("--udp-timeout %s is too short: 100ms at least", f.udpTimeout)
	case f.drain < 0:
		return usage("--drain %s is no time", f.drain)
	}
	_, err := relay.ParseReach(f.reach)
	if err != nil {
		return usage("--reach %v", err)
	}
	return nil
}

// serviceAt reads svc/NAME[:PORT] or NAMESPACE/NAME[:PORT].
func serviceAt(text, namespace string) (s table.Service, port string, err error) {
	name, port, _ := strings.Cut(text, ":")
	switch before, after, slash := strings.Cut(name, "/"); {
	case !slash:
		s = table.Service{Namespace: namespace, Name: before}
	case slices.Contains([]string{"svc", "service", "services"}, strings.ToLower(before)):
		s = table.Service{Namespace: namespace, Name: after}
	default:
		s = table.Service{Namespace: before, Name: after}
	}
	if s.Name == "" || s.Namespace == "" || strings.Contains(s.Name, "/") {
		return s, "", fmt.Errorf("%q names no Service: want svc/NAME[:PORT] or NAMESPACE/NAME[:PORT]", text)
	}
	return s, port, nil
}

// listens are the addresses of --listen.
func (f *userspaceFlags) listens(namespace string) ([]userspace.Listen, error) {
	var out []userspace.Listen
	for _, text := range f.listen {
		at, of, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usage("--listen %s: want ADDRESS:PORT=svc/NAME[:PORT]", text)
		}
		addr, err := netip.ParseAddrPort(at)
		if err != nil || addr.Port() == 0 || addr.Addr().Zone() != "" {
			return nil, usage("--listen %s: %q is no address and port, as 192.0.2.1:80 or [2001:db8::1]:80", text, at)
		}
		s, port, err := serviceAt(of, namespace)
		if err != nil {
			return nil, usage("--listen %s: %v", text, err)
		}
		out = append(out, userspace.Listen{Addr: netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), Service: s, Port: port})
	}
	return out, nil
}

// header says which service ports get a header of the PROXY protocol; nil: none.
func (f *userspaceFlags) header(namespace string) (func(*intent.ServicePort) relay.HeaderVersion, error) {
	type of struct {
		table.Service
		port string
	}
	all, some := relay.NoHeader, make(map[of]relay.HeaderVersion)
	for _, text := range f.headers {
		service, version, one := strings.Cut(text, "=")
		if !one {
			version = text
		}
		v, err := relay.ParseHeaderVersion(version)
		if err != nil {
			return nil, usage("--proxy-protocol %s: %v", text, err)
		}
		if !one {
			all = v
			continue
		}
		s, port, err := serviceAt(service, namespace)
		if err != nil {
			return nil, usage("--proxy-protocol %s: %v", text, err)
		}
		some[of{s, port}] = v
	}
	if all == relay.NoHeader && len(some) == 0 {
		return nil, nil
	}
	return func(sp *intent.ServicePort) relay.HeaderVersion {
		s := table.Service{Namespace: sp.Namespace, Name: sp.Name}
		for _, port := range []string{sp.PortName, fmt.Sprint(sp.Port), ""} {
			if v, ok := some[of{s, port}]; ok {
				return v
			}
		}
		return all
	}, nil
}

// config is what the userspace proxy is told.
func (f *userspaceFlags) config(p *proxyPlan, namespace string) (userspace.Config, error) {
	c := userspace.Config{Config: proxy.Config{Objects: p.objects, Proxy: p.proxy}, Drain: f.drain}
	var err error
	if c.Listen, err = f.listens(namespace); err != nil {
		return c, err
	}
	c.Relay = relay.Options{
		MaxConnections: f.most, MaxPerService: f.mostPerService, ConnectTimeout: f.connectTimeout,
		IdleUDP: f.udpTimeout, UnansweredUDP: f.udpTimeout / 4,
	}
	if c.Relay.Header, err = f.header(namespace); err != nil {
		return c, err
	}
	c.Relay.Reach, err = relay.ParseReach(f.reach)
	return c, err
}

// proxyUserspace serves without rules, or says what it would do.
func (a *app) proxyUserspace(ctx context.Context, f *proxyFlags, p *proxyPlan) error {
	c, err := f.userspace.config(p, f.namespace)
	if err != nil {
		return err
	}
	addrs, err := proxy.NodeAddrs()
	if err != nil {
		return err
	}
	want := userspace.Preview(c, addrs)
	for _, m := range c.Missing(want) {
		return fmt.Errorf("listen on %s: there is no such port of a Service that is served: %s/%s %s (name the port by name or number, and the Service among those to serve)", m.Addr, m.Service.Namespace, m.Service.Name, m.Port)
	}
	p.printUserspace(a.Out, f, &c, want)
	if refusal := p.refusalUserspace(f, want); refusal != "" {
		if f.apply {
			return errors.New(refusal)
		}
		fmt.Fprintf(a.Out, "\nIt would refuse: %s\n", refusal)
		return nil
	}
	if !f.apply {
		fmt.Fprintf(a.Out, "\nNothing was changed. With --apply it is done.\n")
		return nil
	}
	return a.serveUserspace(ctx, f, p, c)
}

// refusalUserspace says why nothing is to be done, empty where something is.
func (p *proxyPlan) refusalUserspace(f *proxyFlags, want relay.Want) string {
	switch {
	case p.running != nil:
		return fmt.Sprintf("%v: process %d, since %s (stop it with kill %d)", proxy.ErrRunning, p.running.PID, p.running.Started.Format(time.RFC3339), p.running.PID)
	case os.Geteuid() != 0:
		return "service addresses are routed here by root only: run it with sudo"
	case f.force:
		return ""
	case len(p.others) > 0:
		return fmt.Sprintf("Services are served by another program on this node: %s. Repair that; --force serves all the same", strings.Join(p.others, "; "))
	case p.serves:
		return "kube-proxy runs on this node and serves as it should, so that there is nothing to stand in for (--force does it all the same)"
	case len(want.Ports) == 0:
		return "no Service that was asked for has anything to serve on a node: headless, ExternalName, or left to another proxy (svcnet trace says which)"
	}
	return ""
}

// printUserspace says what would be done.
func (p *proxyPlan) printUserspace(out io.Writer, f *proxyFlags, c *userspace.Config, want relay.Want) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-10s %s\n", name, render.Clean(fmt.Sprintf(format, args...)))
	}
	services, fronts, sctp := make(map[table.Service]bool), len(want.Extra), 0
	for _, sp := range want.Ports {
		services[table.Service{Namespace: sp.Namespace, Name: sp.Name}] = true
		switch sp.Protocol {
		case "TCP", "UDP":
			fronts += len(sp.Frontends)
		default:
			sctp++
		}
	}
	fmt.Fprintf(out, "Fallback proxy on node %s, userspace mode\n", render.Clean(p.node))
	line("serves", "%s of %s, on %s", plural(len(want.Ports), "service port"), plural(len(services), "Service"), addresses(fronts))
	if sctp > 0 {
		line("", "not %s of SCTP: this mode relays TCP and UDP", plural(sctp, "service port"))
	}
	switch taken := relay.Taken(want.Ports); {
	case len(taken) == 0:
		line("writes", "nothing")
	case c.Relay.Reach == relay.ReachNone:
		line("writes", "nothing; %s not served that are not this node's own", are(len(taken)))
	case c.Relay.Reach == relay.ReachLocal:
		line("writes", "%s in the local routing table (protocol %d); nothing else", routes(len(taken)), relay.RouteProtocol)
		line("", "what this node listens on can be reached at these addresses too; killed, the routes stay until svcnet cleanup")
	default:
		line("writes", "device %s, which leads to a network namespace of its own, and %s to it in the local routing table; nothing else", relay.Device, routes(len(taken)))
		line("", "the kernel removes all of it when the process ends, however it ends")
		if c.Relay.Reach == relay.ReachAuto {
			line("", "where it has no such devices (veth): the routes alone, to this node itself (--reach local)")
		}
	}
	line("rules", "none; connections that rules of kube-proxy still translate do not get here")
	line("clients", "backends see this node's address instead of the client's%s", map[bool]string{true: "; the PROXY protocol tells them", false: " (--proxy-protocol tells them)"}[c.Relay.Header != nil])
	line("pods", "%s (%s)", p.localText(), p.localFrom)
	for _, l := range c.Listen {
		line("listens", "on %s for %s/%s %s", l.Addr, l.Service.Namespace, l.Service.Name, l.Port)
	}
	end := "until it is interrupted"
	if f.ttl > 0 {
		end += fmt.Sprintf(", or %s are over", f.ttl)
	}
	if f.untilHealthy {
		end += ", or kube-proxy serves again"
	}
	line("ends", "%s; connections may then go on for %s", end, c.Drain)
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

func are(n int) string {
	if n == 1 {
		return "1 address is"
	}
	return fmt.Sprintf("%d addresses are", n)
}

func routes(n int) string { return plural(n, "route") }

// serveUserspace serves until something ends it.
func (a *app) serveUserspace(ctx context.Context, f *proxyFlags, p *proxyPlan, c userspace.Config) error {
	hold, err := proxy.Hold(f.runtime, proxy.Running{PID: os.Getpid(), Started: time.Now().UTC().Truncate(time.Second), Mode: "userspace", Until: f.until()})
	if err != nil {
		return err
	}
	defer hold.Release()
	done, ok := a.undo.begin()
	if !ok {
		return context.Canceled
	}
	defer done()
	within, stop := context.WithCancel(ctx)
	defer stop()
	if len(f.files) == 0 {
		c.Objects = proxy.NewObjects(p.only, p.node)
		if err := a.followObjects(within, f, c.Objects); err != nil {
			return err
		}
	}
	if left, err := relay.RemoveRoutes(); err != nil {
		return err
	} else if len(left) > 0 {
		a.log("removed %s that a proxy left which was killed", routes(len(left)))
	}
	c.TTL, c.HealthyEvery, c.Log = f.ttl, f.healthyEvery, a.log
	c.Started = func(s proxy.Stats) {
		a.log("serving %s of %s", plural(s.Ports, "service port"), plural(s.Services, "Service"))
	}
	if f.untilHealthy {
		c.Healthy = func(ctx context.Context) (bool, string) { return a.kubeProxyServes(ctx, f, p) }
	}
	failed := make(chan error, 1)
	if f.userspace.metrics != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.userspace.metrics)
		if err != nil {
			return fmt.Errorf("answer Prometheus: %w (give another address with --metrics)", err)
		}
		c.Running = func(r *relay.Relay) {
			go func() { failed <- answerPrometheus(within, l, r.Collector(f.userspace.perService)) }()
		}
	}
	begun := time.Now()
	ending, err := userspace.Run(within, c)
	if ending != "" {
		a.log("ends after %s: %s", time.Since(begun).Round(time.Second), ending)
	}
	if err == nil && ending == proxy.Interrupted && ctx.Err() != nil {
		return context.Canceled
	}
	select {
	case failure := <-failed:
		err = errors.Join(err, failure)
	default:
	}
	return err
}

// answerPrometheus answers until ctx ends.
func answerPrometheus(ctx context.Context, l net.Listener, c prometheus.Collector) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answer Prometheus: %w", err)
	}
	return nil
}

// cleanupRoutes removes what a userspace proxy of this node left that was killed. While one runs there is nothing to clean.
func (a *app) cleanupRoutes() error {
	if os.Geteuid() != 0 {
		return nil // nobody else has made any, or can remove them
	}
	running, err := proxy.IsRunning(proxy.RuntimeFolder)
	if err != nil || running != nil {
		return err
	}
	left, err := relay.RemoveRoutes()
	for _, addr := range left {
		fmt.Fprintf(a.Out, "route of %s removed from the local routing table of this node\n", addr)
	}
	return err
}
