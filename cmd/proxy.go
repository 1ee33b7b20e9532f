package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
	"github.com/svcnet/svcnet/repair/apply"
	"github.com/svcnet/svcnet/repair/proxy"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// proxyFlags are what `proxy` is asked.
type proxyFlags struct {
	namespace       string
	all             bool
	files           []string
	node            string
	live            live
	apply           bool
	ttl             time.Duration
	untilHealthy    bool
	healthyEvery    time.Duration
	temporary       bool
	removeObstacles bool
	force           bool
	showRules       bool
	clusterCIDRs    []string
	nodePorts       []string
	masqueradeAll   bool
	runtime         string
	journal         string
	userspace       userspaceFlags
}

func (a *app) proxyCommand() *cobra.Command {
	f := &proxyFlags{live: newLive()}
	c := &cobra.Command{
		Use:   "proxy [TYPE/NAME ...]",
		Short: "Serve Services on this node in place of a kube-proxy that is broken",
		Long: "Serve Services on the node that this runs on, with kube-proxy's semantics, from tables of nftables of its own, " +
			"until it is interrupted, its time is over, or kube-proxy serves again. The tables come before kube-proxy's, so " +
			"that stale rules of that do not matter, and they are all that is written: they are removed at the end. " +
			"Connections that exist go on, when it begins as well as when it ends.\n\n" +
			"Without --apply it says what it would do, and does nothing. It refuses where kube-proxy serves as it should, " +
			"where another program serves Services (Cilium, Calico with eBPF), and where rules are in the way that its " +
			"packets cannot get around.\n\n" +
			"Services and EndpointSlices are followed at the API server, and a change is in the kernel within milliseconds. " +
			"While the server is gone, what is known is served; with -f objects of files are, and no server is asked.",
		Example: fmt.Sprintf(`  # What would be done
  sudo %[1]s proxy -A

  # Serve all Services until kube-proxy is back, two hours at most
  sudo %[1]s proxy -A --apply --until-kube-proxy-healthy --ttl 2h

  # One Service, with the API server down
  sudo %[1]s proxy svc/web -n store -f objects.yaml --apply

  # Remove what a proxy left that was killed
  sudo %[1]s cleanup`, a.name),
		RunE: func(c *cobra.Command, args []string) error { return a.proxy(c.Context(), f, args, c.Flags().Changed) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.namespace, "namespace", "n", "default", "Namespace of the Services that are named")
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "Serve all Services")
	fs.BoolVar(&f.apply, "apply", false, "Do it: without this nothing is written")
	fs.DurationVar(&f.ttl, "ttl", 0, "End after this time (default: never)")
	fs.BoolVar(&f.untilHealthy, "until-kube-proxy-healthy", false, "End when kube-proxy has synced and its own rules do what is asked")
	fs.DurationVar(&f.healthyEvery, "healthy-interval", 5*time.Second, "With --until-kube-proxy-healthy: how often to look")
	fs.BoolVar(&f.temporary, "temporary", false, "Have the kernel remove the tables when the process ends, however it ends (kernel 5.12); without this they stay, and serve what was true, when it is killed")
	fs.BoolVar(&f.removeObstacles, "remove-obstacles", false, "With --apply: also remove rules that are in the way, as `repair --apply --allow foreign` does, in its journal")
	fs.BoolVar(&f.force, "force", false, "Serve although kube-proxy or another program does, or rules are in the way")
	fs.BoolVar(&f.showRules, "show-rules", false, "Print the tables as nft would list them, and do nothing")
	fs.StringSliceVar(&f.clusterCIDRs, "cluster-cidr", nil, "Ranges of the cluster's pods, at most one of each family (default: what the node's kube-proxy is told, else the node's own)")
	fs.StringSliceVar(&f.nodePorts, "nodeport-addresses", nil, "Ranges of the node's addresses that take node ports, or primary, or all (default: as the node's kube-proxy)")
	fs.BoolVar(&f.masqueradeAll, "masquerade-all", false, "Hide the address of every client of a cluster IP (default: as the node's kube-proxy)")
	fs.StringVar(&f.node, "node", "", "Name of this node (default: the Node object that is this machine)")
	fs.StringArrayVarP(&f.files, "filename", "f", nil, "File or folder with Services, EndpointSlices and the Node: no server is asked (repeatable)")
	fs.StringVar(&f.journal, "journal", apply.DefaultFolder, "With --remove-obstacles: folder for the journals of repair")
	fs.StringVar(&f.runtime, "runtime-folder", proxy.RuntimeFolder, "Folder of the lock that keeps the proxy the only one of the node")
	f.userspace.addFlags(fs)
	f.live.addCluster(c)
	return c
}

// check says what does not go together.
func (f *proxyFlags) check(args []string, changed func(string) bool) error {
	switch {
	case f.all && (len(args) > 0 || changed("namespace")):
		return usage("-A serves all Services: leave out the names, and -n")
	case !f.all && len(args) == 0:
		return usage("say what is to be served: Services by name (svc/NAME -n NAMESPACE), or -A for all")
	case f.showRules && f.apply:
		return usage("--show-rules does nothing, and --apply does it: give one or the other")
	case changed("healthy-interval") && !f.untilHealthy:
		return usage("--healthy-interval goes with --until-kube-proxy-healthy")
	case f.healthyEvery < 100*time.Millisecond:
		return usage("--healthy-interval %s is too short: a tenth of a second at least", f.healthyEvery)
	case f.ttl < 0:
		return usage("--ttl %s is no time to serve for", f.ttl)
	case f.removeObstacles && !f.apply:
		return usage("--remove-obstacles goes with --apply: without it they are listed")
	case len(f.files) > 0 && f.live.asked() != "":
		return usage("%s is for asking the API server, and with -f none is asked: leave one of them out", f.live.asked())
	case slices.Contains(f.files, "-") && len(f.files) > 1:
		return usage("-f - is standard input: give it alone, or files")
	}
	return f.userspace.check(changed)
}

// proxy serves, or says what it would do.
func (a *app) proxy(ctx context.Context, f *proxyFlags, args []string, changed func(string) bool) error {
	if err := f.check(args, changed); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return errors.New("serve Services: the proxy writes rules of netfilter, which only Linux has (run it on a Linux node; for a Windows node, restart kube-proxy there)")
	}
	var names []string
	for _, arg := range args {
		name, err := serviceName([]string{arg})
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if ns := f.live.namespace(); !changed("namespace") && ns != "" && len(f.files) == 0 {
		f.namespace = ns
	}
	p, err := a.planProxy(ctx, f, names, changed)
	if err != nil {
		return err
	}
	if f.userspace.on {
		return a.proxyUserspace(ctx, f, p)
	}
	if f.showRules {
		for _, t := range p.tables {
			if _, err := io.WriteString(a.Out, t.Print()); err != nil {
				return fmt.Errorf("write the tables: %w", err)
			}
		}
		return nil
	}
	p.print(a.Out, f)
	if refusal := p.refusal(f); refusal != "" {
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
	return a.serve(ctx, f, p)
}

// readNode reads this machine as it is without svcnet's own tables, with objects from where they are to come from.
func (a *app) readNode(ctx context.Context, f *proxyFlags) (*snapshot.Snapshot, error) {
	o := collectors.Options{Node: f.node, WithoutTables: []string{table.Name}}
	var files *snapshot.Snapshot
	if len(f.files) > 0 {
		var err error
		if files, err = snapshot.Load(f.files, a.In); err != nil {
			return nil, err
		}
		f.live.noAPI = true
	} else {
		api, err := f.live.api()
		if err != nil {
			return nil, err
		}
		if api == nil {
			return nil, errors.New("there is nowhere to read Services from: no kubeconfig, and no credentials of kube-proxy on this machine (name a kubeconfig with --kubeconfig, or give objects with -f)")
		}
		o.API = api
	}
	s, err := collectors.Collect(ctx, o)
	if err != nil {
		return nil, err
	}
	if files != nil {
		if s, err = merge(s, files); err != nil {
			return nil, err
		}
		if s.Node == "" {
			s.Node = nodeOfFiles(files)
		}
	}
	s.Tool = versionText()
	return s, nil
}

// nodeOfFiles is the only node that files know, or the one with the host's name.
func nodeOfFiles(files *snapshot.Snapshot) string {
	nodes := decoded(files).Nodes
	host, _ := os.Hostname()
	addrs, _ := proxy.NodeAddrs()
	for _, n := range nodes {
		if n.Name == host {
			return n.Name
		}
		for _, at := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(at.Address); err == nil && slices.Contains(addrs, ip) {
				return n.Name
			}
		}
	}
	return ""
}

// until says what ends a run.
func (f *proxyFlags) until() string {
	until := []string{"interrupted"}
	if f.ttl > 0 {
		until = append(until, f.ttl.String()+" are over")
	}
	if f.untilHealthy {
		until = append(until, "kube-proxy serves again")
	}
	return strings.Join(until, ", or ")
}

// serve serves until something ends it.
func (a *app) serve(ctx context.Context, f *proxyFlags, p *proxyPlan) error {
	hold, err := proxy.Hold(f.runtime, proxy.Running{PID: os.Getpid(), Started: time.Now().UTC().Truncate(time.Second), Mode: "kernel", Until: f.until()})
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
	objects := p.objects
	if len(f.files) == 0 {
		objects = proxy.NewObjects(p.only, p.node)
		if err := a.followObjects(within, f, objects); err != nil {
			return err
		}
	}
	c := proxy.Config{
		Objects: objects, Proxy: p.proxy, TTL: f.ttl, HealthyEvery: f.healthyEvery, Temporary: f.temporary, Log: a.log,
		Started: func(s proxy.Stats) {
			a.log("serving %s of %s", plural(s.Ports, "service port"), plural(s.Services, "Service"))
			go a.lookBehind(within, f, p)
		},
	}
	if f.userspace.metrics != "" {
		m := &proxyMetrics{}
		if err := m.listen(within, f.userspace.metrics); err != nil {
			return err
		}
		c.Progress = func(s proxy.Stats) { m.last.Store(&s) }
	}
	if f.untilHealthy {
		c.Healthy = func(ctx context.Context) (bool, string) { return a.kubeProxyServes(ctx, f, p) }
	}
	begun := time.Now()
	ending, err := proxy.Run(within, c)
	if ending != "" {
		a.log("ends after %s: %s; its tables are removed", time.Since(begun).Round(time.Second), ending)
	}
	if err == nil && ending == proxy.Interrupted && ctx.Err() != nil {
		return context.Canceled
	}
	return err
}

// log tells on standard error what happens, with the time.
func (a *app) log(format string, args ...any) {
	a.note(time.Now().UTC().Format("2006-01-02T15:04:05.000Z")+" "+format, args...)
}

// followObjects follows the API server. It returns when all objects were listed once.
func (a *app) followObjects(ctx context.Context, f *proxyFlags, o *proxy.Objects) error {
	api, err := f.live.api()
	if err != nil {
		return err
	}
	if api == nil {
		return errors.New("there is nowhere to follow Services: no kubeconfig")
	}
	synced, err := proxy.Watch(ctx, api.Config, o, func(err error) {
		if err != nil {
			a.log("the API server does not answer, what is known is served: %v", err)
			return
		}
		a.log("the API server answers again")
	})
	if err != nil {
		return err
	}
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookBehind looks once, when everything is in the kernel, whether packets go where they should, and tells what is still
// in their way.
func (a *app) lookBehind(ctx context.Context, f *proxyFlags, p *proxyPlan) {
	s, err := a.collectAgain(ctx, f, nil)
	if err != nil {
		return // it ends
	}
	r, obstacles, err := explain.AuditInTheWay(s, p.audit)
	if err != nil {
		a.log("what became of it cannot be looked at: %v", err)
		return
	}
	for _, o := range obstacles {
		a.log("still in the way: %s", obstacleText(o))
	}
	for _, x := range r.Findings {
		if check.Rank(x.Severity) <= check.Rank(check.Error) && x.CausedBy == "" && x.ID != "proxy-not-running" {
			a.log("%s %s: %s", x.Severity, x.ID, x.Message)
		}
	}
	a.log("looked at the node: %d of %d Services are served as they should", r.Services.OK, r.Services.Total-r.Services.Skipped)
	if f.removeObstacles && len(obstacles) > 0 {
		a.removeObstacles(ctx, f, p, r)
	}
}

// collectAgain reads the node with the objects of now.
func (a *app) collectAgain(ctx context.Context, f *proxyFlags, without []string) (*snapshot.Snapshot, error) {
	o := collectors.Options{Node: f.node, WithoutTables: without}
	if len(f.files) == 0 {
		api, err := f.live.api()
		if err != nil {
			return nil, err
		}
		o.API = api
	}
	s, err := collectors.Collect(ctx, o)
	if err != nil || len(f.files) == 0 {
		return s, err
	}
	files, err := snapshot.Load(f.files, nil)
	if err != nil {
		return nil, err
	}
	s, err = merge(s, files)
	if err == nil && s.Node == "" {
		s.Node = nodeOfFiles(files)
	}
	return s, err
}

// kubeProxyServes tells whether kube-proxy would serve by itself what is asked: it says that it is healthy, and its own
// rules, without svcnet's tables, do what the objects ask for; if not, why.
func (a *app) kubeProxyServes(ctx context.Context, f *proxyFlags, p *proxyPlan) (ok bool, why string) {
	if why := askHealthz(ctx); why != "" {
		return false, why
	}
	s, err := a.collectAgain(ctx, f, []string{table.Name})
	if err != nil {
		return false, err.Error()
	}
	r, err := explain.Read(s, p.audit)
	if err != nil {
		return false, err.Error()
	}
	return servesBySelf(r, p)
}

// servesBySelf judges a node that was read without svcnet's tables. What is wrong with the proxy's tables in place too is
// not kube-proxy's to mend.
func servesBySelf(r *explain.Reading, p *proxyPlan) (ok bool, why string) {
	n := r.Node()
	switch {
	case n.Proxy.Presence != traits.Running:
		return false, "no kube-proxy runs on this node"
	case n.Proxy.Health.Word == "unhealthy":
		return false, "kube-proxy says that it is not healthy"
	}
	for _, x := range r.Report.Findings {
		if check.Rank(x.Severity) > check.Rank(check.Error) || p.anyway[findingKey(&x)] {
			continue
		}
		return false, fmt.Sprintf("%s: %s", x.ID, x.Message)
	}
	return true, ""
}

// findingKey tells findings of two readings apart.
func findingKey(f *report.Finding) string {
	return strings.Join([]string{f.ID, f.Object.Kind, f.Object.Namespace, f.Object.Name, f.Object.Port, f.Object.Protocol}, " ")
}

// askHealthz asks kube-proxy's health port, and says why it is not healthy; empty: it is, or does not have its usual port.
func askHealthz(ctx context.Context) string {
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(within, http.MethodGet, "http://127.0.0.1:10256/healthz", nil)
	if err != nil {
		return err.Error()
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return "nobody answers on 127.0.0.1:10256, where kube-proxy says how it is"
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprintf("kube-proxy says that it is not healthy (%s)", answer.Status)
	}
	return ""
}

// plural is "1 thing" or "2 things".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// cleanupTables removes the tables that a proxy left which was killed, and tells whether there were any. Those of one that
// runs are its own to remove.
func (a *app) cleanupTables(folder string) (removed bool, err error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	running, err := proxy.IsRunning(folder)
	if err != nil {
		return false, err
	}
	if running != nil {
		a.note("a fallback proxy runs on this node (process %d): its tables stay; kill %[1]d ends it, and removes them", running.PID)
		return false, nil
	}
	tables, err := proxy.RemoveLeft(folder)
	for _, t := range tables {
		fmt.Fprintf(a.Out, "%s removed from this node: a fallback proxy was killed\n", t)
	}
	return len(tables) > 0, err
}
