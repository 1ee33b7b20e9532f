package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to log in that kubeconfigs name
	"k8s.io/client-go/rest"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
)

// live holds the flags that say how a live node and the API are read.
type live struct {
	config *genericclioptions.ConfigFlags
	noAPI  bool
	silent bool
	// root is where the node's root is mounted, in a pod.
	root string
	// timeout of one request to the API.
	timeout time.Duration
	// said is true once it was said what is read.
	said bool
}

func newLive() live {
	// The flags of kubectl that choose a cluster and a user; the namespace is each command's own.
	empty := func() *string { s := ""; return &s }
	return live{config: &genericclioptions.ConfigFlags{
		KubeConfig: empty(), Context: empty(), Impersonate: empty(),
	}}
}

func (l *live) addFlags(c *cobra.Command) {
	fs := c.Flags()
	l.addCluster(c)
	fs.BoolVar(&l.noAPI, "no-api", false, "Do not read objects from the API server")
	fs.StringVar(&l.root, "root", "", "Folder where the node's root is mounted, for a svcnet that runs in a pod of the host's network")
	fs.BoolVar(&l.silent, "silent", false, "Do not ask kube-proxy's HTTP endpoints, which moves packet counters")
}

// addCluster adds the flags that choose a cluster and a user.
func (l *live) addCluster(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(l.config.KubeConfig, "kubeconfig", "", "Path of the kubeconfig to read objects with")
	fs.StringVar(l.config.Context, "context", "", "Context of the kubeconfig to use")
	fs.StringVar(l.config.Impersonate, "as", "", "User to impersonate for reading objects")
	fs.DurationVar(&l.timeout, "request-timeout", collectors.DefaultAPITimeout, "Longest time to wait for one answer of the API server")
}

// hasKubeconfig tells whether the flags, $KUBECONFIG or the home folder name a cluster.
func (l *live) hasKubeconfig() bool {
	raw, err := l.config.ToRawKubeConfigLoader().RawConfig()
	return err == nil && len(raw.Clusters) > 0
}

// asked tells whether any flag that only a live reading needs was given.
func (l *live) asked() string {
	switch {
	case l.noAPI:
		return "--no-api"
	case l.silent:
		return "--silent"
	case l.root != "":
		return "--root"
	case *l.config.KubeConfig != "":
		return "--kubeconfig"
	case *l.config.Context != "":
		return "--context"
	case *l.config.Impersonate != "":
		return "--as"
	}
	return ""
}

// namespace is that of the context, as kubectl takes it; empty when there is no kubeconfig.
func (l *live) namespace() string {
	if l.noAPI {
		return ""
	}
	ns, _, err := l.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return ""
	}
	return ns
}

// api is where objects come from: what the flags, $KUBECONFIG or the home folder name, the service account of
// the pod that svcnet runs in, or at last the credentials of this machine's kube-proxy, which a worker node
// always has. Nil with a reason: nowhere.
func (l *live) api() (*collectors.API, error) {
	if l.noAPI {
		return nil, nil
	}
	raw, err := l.config.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(raw.Clusters) > 0 {
		var c *rest.Config
		if c, err = l.config.ToRESTConfig(); err == nil {
			return &collectors.API{Config: c, From: "the kubeconfig", Timeout: l.timeout}, nil
		}
	}
	if *l.config.KubeConfig != "" || *l.config.Context != "" || os.Getenv("KUBECONFIG") != "" {
		// Asked for, and wrong: nobody else's credentials stand in for that.
		if err == nil {
			err = l.noCluster()
		}
		return nil, kubeconfigError(err)
	}
	if c, err := rest.InClusterConfig(); err == nil {
		return &collectors.API{Config: c, From: "the service account of this pod", Timeout: l.timeout}, nil
	}
	if a := collectors.ProxyAPI(); a != nil {
		a.Timeout = l.timeout
		return a, nil
	}
	if err != nil {
		return nil, kubeconfigError(err)
	}
	return nil, nil
}

func kubeconfigError(err error) error {
	return fmt.Errorf("read the kubeconfig: %w (name another with --kubeconfig, or do without objects with --no-api)", err)
}

// noCluster says why a kubeconfig that was asked for names no cluster. Files of $KUBECONFIG that are not there are
// passed over, as kubectl does it.
func (l *live) noCluster() error {
	names := filepath.SplitList(os.Getenv("KUBECONFIG"))
	there := func(name string) bool { _, err := os.Stat(name); return err == nil }
	if *l.config.KubeConfig == "" && len(names) > 0 && !slices.ContainsFunc(names, there) {
		return fmt.Errorf("no such file as $KUBECONFIG names: %s", strings.Join(names, ", "))
	}
	return errors.New("it names no cluster")
}

// read reads this machine, and the network namespaces of pods. known are the pods of this node where files say them.
func (l *live) read(ctx context.Context, a *app, node string, pods []string, known []*corev1.Pod) (*snapshot.Snapshot, error) {
	api, err := l.api()
	if err != nil {
		return nil, err
	}
	s, err := collectors.Collect(ctx, collectors.Options{Node: node, API: api, Root: l.root, Silent: l.silent, Pods: pods, Known: known})
	if err != nil {
		return nil, err
	}
	if api == nil && !l.noAPI {
		s.Evidence = append(s.Evidence, noKubeconfig())
		s.Arrange()
	}
	s.Tool, s.Captured = versionText(), time.Now().UTC().Format(time.RFC3339)
	if why := noNode(s); why != "" {
		return nil, &notNode{why, s.Of(snapshot.Objects)}
	}
	l.say(a, s, api)
	return s, nil
}

// beside reads this machine, and puts objects that are known already beside that; without an API it says that there are
// none. kept is what was read of rules before; nil: they are read, with counters as they are now.
func (l *live) beside(ctx context.Context, node string, api *collectors.API, objects []snapshot.Evidence, kept *collectors.Kept) (*snapshot.Snapshot, error) {
	s, err := collectors.Collect(ctx, collectors.Options{Node: node, Root: l.root, Silent: l.silent, Kept: kept})
	if err != nil {
		return nil, err
	}
	s.Evidence = append(s.Evidence, objects...)
	if api == nil && !l.noAPI {
		s.Evidence = append(s.Evidence, noKubeconfig())
	}
	s.Arrange()
	s.Tool = versionText()
	return s, nil
}

// noKubeconfig is the evidence that there was nowhere to read objects from.
func noKubeconfig() snapshot.Evidence {
	return snapshot.Evidence{
		File: "api", Format: snapshot.Objects, Status: snapshot.NotCollected,
		Error: "no kubeconfig: objects were not read (name one with --kubeconfig, or give objects with -f and --live)",
	}
}

// noNode says why this machine is no node that serves Services; empty when it may be one. What could not be
// looked at speaks for it.
func noNode(s *snapshot.Snapshot) string {
	root := true
	for _, e := range s.Evidence {
		switch e.Format {
		case snapshot.IPTablesSave, snapshot.NFTNetlink, snapshot.NFTJSON, snapshot.IPVSSave:
			if e.Status == snapshot.Denied {
				root = false
			} else if !e.Status.Answers() || strings.Contains(string(e.Data), "KUBE-") || strings.Contains(string(e.Data), "kube-proxy") {
				return ""
			}
		case snapshot.ProxyArgs:
			if e.Status == snapshot.OK {
				return ""
			}
		}
	}
	if s.Node != "" {
		return ""
	}
	if !root {
		return "whether this machine is a Kubernetes node cannot be seen: no Node object is known to be it, it shows no kube-proxy, and its rules are for root alone to read; run this as root on a node, or give files or a bundle of a node with -f"
	}
	return "this machine is no Kubernetes node: it has no service rules and no kube-proxy, and no Node object is known to be it; give files or a bundle of a node with -f, or run this on a node"
}

// say tells somebody at a terminal what is being read: it decides what the answer is about.
func (l *live) say(a *app, s *snapshot.Snapshot, api *collectors.API) {
	if !isTerminal(a.Err) || l.said {
		return
	}
	l.said = true
	who := "this machine"
	if s.Node != "" {
		who += fmt.Sprintf(" (node %s)", s.Node)
	}
	with := "no objects"
	if api != nil {
		with = fmt.Sprintf("objects from %s with %s", api.Config.Host, api.From)
	}
	a.note("reading %s, %s", who, with)
}

// merge puts evidence of files beside what was read here. Objects of files take the place of the API's.
func merge(read, files *snapshot.Snapshot) (*snapshot.Snapshot, error) {
	if files.Captured != "" {
		return nil, errors.New("--live reads this machine, and -f names a bundle, which holds another reading: give one or the other")
	}
	given := len(files.Of(snapshot.Objects)) > 0
	read.Evidence = slices.DeleteFunc(read.Evidence, func(e snapshot.Evidence) bool { return given && e.Format == snapshot.Objects })
	read.Evidence = append(read.Evidence, files.Evidence...)
	read.Arrange()
	return read, nil
}
