package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/plugin"
)

// through holds the flags that say which nodes of the cluster are read, and with what pods.
type through struct {
	// names are the values of --node, which offline name whose evidence it is.
	names       []string
	all         bool
	selector    string
	concurrency int
	image       string
	binary      string
	privileged  bool
	print       bool
	namespace   string
	pullSecret  string
	timeout     time.Duration
	// stay is how long a pod may stay that is asked again and again; 0: one is not.
	stay time.Duration
}

// ownProgram is the value of --copy-binary without a file.
const ownProgram = "this program"

func (t *through) addFlags(c *cobra.Command) {
	fs := c.Flags()
	fs.StringSliceVar(&t.names, "node", nil, "Node to read, through a short-lived pod there (repeatable); with -f, --live, --root or --no-api the name of the node whose evidence this is")
	fs.BoolVar(&t.all, "all-nodes", false, "Read every node of the cluster")
	fs.StringVar(&t.selector, "node-selector", "", "Read nodes with these labels, as kubectl takes them")
	fs.IntVar(&t.concurrency, "concurrency", 8, "Nodes to read at a time")
	fs.StringVar(&t.image, "image", "", "Image of the pods (default $SVCNET_IMAGE, else that of this version; with --copy-binary "+anyShell+")")
	fs.StringVar(&t.binary, "copy-binary", "", "Copy this program, or a Linux one given as --copy-binary=FILE, into the pods, whose image then needs nothing but a shell")
	fs.Lookup("copy-binary").NoOptDefVal = ownProgram
	fs.BoolVar(&t.privileged, "privileged", false, "Run the pods privileged, where the few capabilities that reading takes are not enough")
	fs.BoolVar(&t.print, "print-pod", false, "Print the pods that would be created, and create none")
	t.addPlace(c, "kube-system", "Namespace to create the pods in")
	fs.StringVar(&t.pullSecret, "image-pull-secret", "", "Secret of that namespace to pull the image with")
	fs.DurationVar(&t.timeout, "timeout", 2*time.Minute, "Longest time to wait for one node; its pod ends by itself a minute later")
}

func (t *through) addPlace(c *cobra.Command, namespace, help string) {
	c.Flags().StringVar(&t.namespace, "pod-namespace", namespace, help)
}

// asked is a flag that only reading through pods needs, empty: none was given.
func (t *through) asked() string {
	switch {
	case t.all:
		return "--all-nodes"
	case t.selector != "":
		return "--node-selector"
	case t.print:
		return "--print-pod"
	case t.binary != "":
		return "--copy-binary"
	case t.image != "":
		return "--image"
	case t.privileged:
		return "--privileged"
	}
	return ""
}

// Images of pods. Programs that are no release have none of their own.
const (
	repository = "ghcr.io/svcnet/svcnet"
	anyShell   = "busybox"
)

// pods are what the flags make of the pods.
func (t *through) pods(a *app, e *evidence) (plugin.Options, error) {
	o := plugin.Options{
		Namespace: t.namespace, PullSecret: t.pullSecret, Privileged: t.privileged, Pods: e.pods, Silent: e.live.silent,
		Instance: plugin.NewInstance(), Timeout: t.timeout, Stay: t.stay,
		Image: cmp.Or(t.image, a.env("SVCNET_IMAGE")),
	}
	if t.concurrency < 1 || t.timeout < time.Second {
		return o, usage("--concurrency and --timeout have to leave something: at least one node at a time, and a second for it")
	}
	switch t.binary {
	case "":
	case ownProgram:
		if runtime.GOOS != "linux" {
			return o, usage("--copy-binary: this program is for %s, and nodes run Linux: name a Linux svcnet with --copy-binary=FILE", runtime.GOOS)
		}
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find this program's file: %w (name it with --copy-binary=FILE)", err)
		}
		o.Binary = self
	default:
		o.Binary = t.binary
	}
	if o.Binary != "" {
		if _, err := plugin.CheckBinary(o.Binary); err != nil {
			return o, err
		}
		o.Image = cmp.Or(o.Image, anyShell)
	}
	if o.Image == "" {
		info, ok := debug.ReadBuildInfo()
		if !ok || !strings.HasPrefix(info.Main.Version, "v") || strings.ContainsAny(info.Main.Version, "-+") {
			return o, usage("this program is no release, so that there is no image of it: name one with --image, or copy this program into any image that has a shell with --copy-binary")
		}
		o.Image = repository + ":" + info.Main.Version
	}
	return o, nil
}

// A choice picks the nodes that matter for a question when no flag names any, and says why those; nil: all.
type choice func(set *objects.Set) (nodes []string, why string, err error)

// reach is how nodes are read through the cluster.
type reach struct {
	app     *app
	api     *collectors.API
	cluster *plugin.Cluster
	pods    plugin.Options
	// objects are those of the whole cluster, as they were at readAt.
	objects []snapshot.Evidence
	readAt  time.Time
	reading sync.Mutex // held while they are read anew
	nodes   []*corev1.Node
	// made counts the pods of this run, which have a number each.
	made atomic.Int64
	// at is how many nodes are read at a time.
	at int
	// session is the pod of the only node, which is read again where it shows differences.
	session *plugin.Session
	// silent keeps progress from standard error, where somebody else shows it.
	silent bool
}

// notNode says that this machine is none; objects are what the API has.
type notNode struct {
	why     string
	objects []snapshot.Evidence
}

func (e *notNode) Error() string { return e.why }

// reach finds out whether nodes are read through the cluster, and which; nil: this machine is read, or files.
func (a *app) reach(ctx context.Context, e *evidence, pick choice) (*reach, error) {
	t := &e.through
	local := e.alsoLive || e.live.noAPI || e.live.root != ""
	switch flag := t.asked(); {
	case e.offline() || local:
		if flag != "" {
			return nil, usage("%s is for reading nodes through the cluster, and here files or this machine are read: leave it out", flag)
		}
		if len(t.names) > 1 {
			return nil, usage("--node says whose evidence this is: name one node")
		}
		return nil, nil
	case t.all && (len(t.names) > 0 || t.selector != ""), len(t.names) > 0 && t.selector != "":
		return nil, usage("--node, --node-selector and --all-nodes exclude each other")
	}
	var known []snapshot.Evidence
	if len(t.names) == 0 && t.asked() == "" {
		s, err := e.live.read(ctx, a, "", e.pods, nil)
		var none *notNode
		switch {
		case err == nil:
			e.first = s
			return nil, nil
		case errors.As(err, &none):
			known = slices.DeleteFunc(none.objects, func(e snapshot.Evidence) bool { return e.File == "pods.json" })
		case runtime.GOOS == "linux":
			return nil, err
		}
		if !e.live.hasKubeconfig() {
			return nil, err
		}
	}
	r := &reach{app: a, at: t.concurrency}
	var err error
	if r.pods, err = t.pods(a, e); err != nil {
		return nil, err
	}
	if t.print && len(t.names) > 0 {
		// Nothing has to be asked.
		return nil, a.printPods(t.names, r.pods)
	}
	if r.api, err = e.live.api(); err != nil {
		return nil, err
	}
	if r.api == nil {
		return nil, errors.New("read nodes through the cluster: there is no kubeconfig (name one with --kubeconfig, or run this on the node)")
	}
	if r.objects, r.readAt = known, time.Now(); r.objects == nil {
		r.objects = collectors.ReadObjects(ctx, r.api)
	}
	why, err := r.choose(t, pick)
	if err != nil {
		return nil, err
	}
	if t.print {
		return nil, a.printPods(r.names(), r.pods)
	}
	if r.cluster, err = plugin.NewCluster(r.api.Config); err != nil {
		return nil, err
	}
	if err := r.cluster.CheckAccess(ctx, r.pods.Namespace); err != nil {
		return nil, err
	}
	r.announce(why)
	// Pods of clients that were killed ended by themselves; who may not list them leaves them.
	_, _ = r.cluster.Sweep(ctx, r.pods.Namespace)
	return r, ctx.Err()
}

// choose picks the nodes and says why those.
func (r *reach) choose(t *through, pick choice) (why string, err error) {
	set := decoded(&snapshot.Snapshot{Evidence: r.objects})
	if len(set.Nodes) == 0 {
		for _, e := range r.objects {
			if e.Error != "" && (e.File == "nodes.json" || e.File == "api") {
				if len(t.names) == 0 || e.File == "api" {
					return "", errors.New(e.Error)
				}
				break
			}
		}
	}
	wanted := t.names
	switch {
	case len(wanted) > 0:
	case t.selector != "":
		s, err := labels.Parse(t.selector)
		if err != nil {
			return "", usage("--node-selector %s: %v", t.selector, err)
		}
		for _, n := range set.Nodes {
			if s.Matches(labels.Set(n.Labels)) {
				wanted = append(wanted, n.Name)
			}
		}
		if len(wanted) == 0 {
			return "", fmt.Errorf("no node has the labels %s (see `kubectl get nodes --show-labels`)", t.selector)
		}
	case !t.all && pick != nil:
		if wanted, why, err = pick(set); err != nil {
			return "", err
		}
	}
	if len(wanted) == 0 {
		for _, n := range set.Nodes {
			wanted = append(wanted, n.Name)
		}
		why = cmp.Or(why, "all nodes of the cluster")
	}
	wanted = slices.Clone(wanted)
	slices.Sort(wanted)
	for _, name := range slices.Compact(wanted) {
		n, ok := set.Node(name)
		switch {
		case ok:
			r.nodes = append(r.nodes, n.Node)
		case len(set.Nodes) == 0:
			// Nodes could not be listed: what is wrong with this one shows in its pod.
			r.nodes = append(r.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		default:
			return "", fmt.Errorf("there is no node %s (see `kubectl get nodes`)", name)
		}
	}
	if len(r.nodes) == 0 {
		return "", errors.New("the cluster has no nodes")
	}
	return why, nil
}

func (r *reach) names() []string {
	var out []string
	for _, n := range r.nodes {
		out = append(out, n.Name)
	}
	return out
}

// announce tells somebody at a terminal what is about to be made, and where.
func (r *reach) announce(why string) {
	if !isTerminal(r.app.Err) {
		return
	}
	names := r.names()
	what := fmt.Sprintf("a pod on node %s", names[0])
	if len(names) > 1 {
		const most = 6
		list := strings.Join(names[:min(most, len(names))], ", ")
		if len(names) > most {
			list += ", …"
		}
		what = fmt.Sprintf("a pod on each of %d nodes (%s)", len(names), list)
	}
	if why != "" {
		what += ", " + why + ","
	}
	r.app.note("reading through %s in namespace %s of %s; each is deleted when its node is read (--print-pod shows it)", what, r.pods.Namespace, r.api.Config.Host)
}

// printPods prints manifests in place of a document.
func (a *app) printPods(nodes []string, o plugin.Options) error {
	for i, node := range nodes {
		text, err := yaml.Marshal(plugin.Pod(fmt.Sprintf("svcnet-%s-%d", o.Instance, i), node, o))
		if err != nil {
			return fmt.Errorf("print the pod: %w", err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := a.Out.Write(text); err != nil {
			return fmt.Errorf("print the pod: %w", err)
		}
	}
	return &exitError{exitOK}
}

// read reads one node once.
func (r *reach) read(ctx context.Context, node *corev1.Node) nodeEvidence {
	n := nodeEvidence{node: node.Name}
	if n.err = ctx.Err(); n.err != nil {
		return n
	}
	done, ok := r.app.undo.begin()
	if !ok {
		n.err = context.Canceled
		return n
	}
	defer done()
	pods := collectors.PodsOf(ctx, r.api, n.node)
	all := r.current(ctx)
	if n.snapshot, n.err = r.cluster.Run(ctx, node, int(r.made.Add(1))-1, r.pods, pods.Data); n.err == nil {
		complete(n.snapshot, all, pods)
	}
	return n
}

// objectsAge is how old objects may be when a node is read: a large cluster takes minutes.
const objectsAge = 30 * time.Second

// current are the objects of the cluster, read anew when they are old. What cannot be read any more stays as it was.
func (r *reach) current(ctx context.Context) []snapshot.Evidence {
	r.reading.Lock()
	defer r.reading.Unlock()
	if time.Since(r.readAt) > objectsAge {
		if all := collectors.ReadObjects(ctx, r.api); answersAsMuch(all, r.objects) {
			r.objects = all
		}
		r.readAt = time.Now()
	}
	return r.objects
}

// answersAsMuch tells whether everything that was answered before still is.
func answersAsMuch(now, before []snapshot.Evidence) bool {
	return !slices.ContainsFunc(before, func(b snapshot.Evidence) bool {
		return b.Status.Answers() && !slices.ContainsFunc(now, func(e snapshot.Evidence) bool { return e.File == b.File && e.Status.Answers() })
	})
}

// complete puts objects beside what was read of the node.
func complete(s *snapshot.Snapshot, all []snapshot.Evidence, pods snapshot.Evidence) {
	s.Evidence = append(append(s.Evidence, all...), pods)
	s.Arrange()
}

// one reads the only node; its pod stays for another look, with objects as they are then.
func (r *reach) one(ctx context.Context) (*snapshot.Snapshot, error) {
	first := r.session == nil
	if !first {
		r.objects = collectors.ReadObjects(ctx, r.api)
	}
	pods := collectors.PodsOf(ctx, r.api, r.nodes[0].Name)
	if first {
		done, ok := r.app.undo.begin()
		if !ok {
			return nil, context.Canceled
		}
		session, err := r.cluster.Open(ctx, r.nodes[0], 0, r.pods)
		if err != nil {
			done()
			return nil, err
		}
		r.session = session
		r.app.closers = append(r.app.closers, func() error {
			defer done()
			return session.Close(ctx)
		})
	}
	s, err := r.session.Collect(ctx, pods.Data)
	if err != nil {
		return nil, err
	}
	complete(s, r.objects, pods)
	return s, nil
}

// each reads the nodes, several at a time, and hands them out one by one in the order of their names: who is ready
// early waits, so that the same cluster gives the same document, and no more nodes are held than are read at a time.
func (r *reach) each(ctx context.Context, nodes []*corev1.Node) iter.Seq[nodeEvidence] {
	return func(yield func(nodeEvidence) bool) {
		ctx, cancel := context.WithCancel(ctx)
		show := newProgress(r.app, len(nodes))
		show.on = show.on && !r.silent
		defer show.end()
		results := make([]chan nodeEvidence, len(nodes))
		for i := range results {
			results[i] = make(chan nodeEvidence, 1)
		}
		slots := make(chan struct{}, r.at)
		var running sync.WaitGroup
		running.Go(func() {
			for i := range nodes {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				running.Go(func() {
					results[i] <- r.read(ctx, nodes[i])
					show.one(nodes[i].Name)
				})
			}
		})
		defer running.Wait()
		defer cancel()
		for i := range nodes {
			var n nodeEvidence
			select {
			case n = <-results[i]:
			case <-ctx.Done():
				return
			}
			if !yield(n) {
				return
			}
			<-slots
		}
	}
}

// again reads some of the nodes once more, with objects that are not older.
func (r *reach) again(ctx context.Context, names []string) iter.Seq[nodeEvidence] {
	r.reading.Lock()
	r.readAt = time.Time{}
	r.reading.Unlock()
	return r.each(ctx, slices.DeleteFunc(slices.Clone(r.nodes), func(n *corev1.Node) bool { return !slices.Contains(names, n.Name) }))
}

// progress counts nodes on standard error, for somebody at a terminal who waits for longer than a moment.
type progress struct {
	app   *app
	all   int
	began time.Time
	on    bool
	mu    sync.Mutex
	done  int
	shown bool
}

func newProgress(a *app, all int) *progress {
	return &progress{app: a, all: all, began: time.Now(), on: isTerminal(a.Err)}
}

// clearLine goes to the start of the line and clears it.
const clearLine = "\r\x1b[K"

func (p *progress) one(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.on && time.Since(p.began) > 500*time.Millisecond {
		p.shown = true
		fmt.Fprintf(p.app.Err, clearLine+"read %d of %d nodes (%s)", p.done, p.all, render.Clean(node))
	}
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.app.Err, clearLine)
	}
}

// undoing counts what must be undone before the program may end.
type undoing struct {
	mu    sync.Mutex
	ended bool
	open  sync.WaitGroup
}

// begin is called before something is made, and done once it is gone; not ok: the program ends, nothing is made any
// more.
func (u *undoing) begin() (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return nil, false
	}
	u.open.Add(1)
	return u.open.Done, true
}

// wait lets nothing begin any more, and waits for what did.
func (u *undoing) wait() {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.open.Wait()
}
