package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/plugin"
)

// podStays is how long a pod is asked before another one takes its place. A pod whose client is gone ends by itself, and
// that should not take for ever.
const podStays = 15 * time.Minute

// failedPod is how long no other pod is made after one that did not come to anything.
const failedPod = 15 * time.Second

// visit reads nodes of the cluster again and again: one at a time, through a pod that stays while its node is looked at.
type visit struct {
	reach *reach
	// follow begins to follow the objects of the cluster, with the pods of a node where one is named.
	follow func(node string) (*collectors.Objects, error)
	// open makes a pod on a node; number counts those of this run.
	open func(ctx context.Context, node *corev1.Node, number int) (session, error)

	// mu is held for the time of a reading, and by who leaves.
	mu   sync.Mutex
	over bool
	// objects are those of the cluster; nil: they are not followed yet.
	objects *collectors.Objects
	// node is the one that session is on, since opened; done tells that the pod is gone.
	node    string
	session session
	opened  time.Time
	done    func()
	// pods are those of podsOf, as they were at podsAt, where they are not followed.
	pods     snapshot.Evidence
	podsOf   string
	podsAt   time.Time
	selected selected
	// failed is why the last pod came to nothing, at failedAt.
	failed   error
	failedAt time.Time
	// left are pods that could not be deleted.
	left []error
}

// session is a pod that is asked.
type session interface {
	Collect(ctx context.Context, podList []byte) (*snapshot.Snapshot, error)
	Close(ctx context.Context) error
}

var _ session = (*plugin.Session)(nil)

func newVisit(ctx context.Context, r *reach) *visit {
	return &visit{
		reach:  r,
		follow: func(node string) (*collectors.Objects, error) { return follow(ctx, r.api, node) },
		open: func(ctx context.Context, node *corev1.Node, number int) (session, error) {
			s, err := r.cluster.Open(ctx, node, number, r.pods)
			if err != nil {
				return nil, err // no *plugin.Session that is nil
			}
			return s, nil
		},
	}
}

// read reads a node; empty: the first.
func (v *visit) read(ctx context.Context, name string) (*snapshot.Snapshot, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return nil, context.Canceled
	}
	node, err := v.named(name)
	if err != nil {
		return nil, err
	}
	objects, pods, err := v.around(ctx, node.Name)
	if err != nil {
		return nil, err
	}
	if v.session != nil && (v.node != node.Name || time.Since(v.opened) > podStays) {
		v.close(ctx)
	}
	s, err := v.collect(ctx, node)
	if err != nil {
		return nil, err
	}
	complete(s, objects, pods)
	return s, nil
}

func (v *visit) named(name string) (*corev1.Node, error) {
	if name == "" {
		return v.reach.nodes[0], nil
	}
	i := slices.IndexFunc(v.reach.nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("read node %s: it is none of those that were asked for", name)
	}
	return v.reach.nodes[i], nil
}

// around are the objects of the cluster and the pods of a node. Of one node pods are followed too; of several, they are
// listed for the one that is looked at, and not for every reading.
func (v *visit) around(ctx context.Context, node string) (objects []snapshot.Evidence, pods snapshot.Evidence, err error) {
	one := ""
	if len(v.reach.nodes) == 1 {
		one = node
	}
	if v.objects == nil {
		if v.objects, err = v.follow(one); err != nil {
			return nil, pods, err
		}
	}
	if objects, err = known(ctx, v.objects); err != nil {
		return nil, pods, err
	}
	objects = append(objects, v.selected.of(ctx, v.reach.api, objects)...)
	const podsFile = "pods.json"
	if i := slices.IndexFunc(objects, func(e snapshot.Evidence) bool { return e.File == podsFile }); i >= 0 {
		pods = objects[i]
		objects = slices.Delete(objects, i, i+1)
	}
	if one == "" {
		if v.podsOf != node || time.Since(v.podsAt) > objectsAge {
			v.pods, v.podsOf, v.podsAt = collectors.PodsOf(ctx, v.reach.api, node), node, time.Now()
		}
		pods = v.pods
	}
	return objects, pods, nil
}

// collect asks the pod on a node, which is made where there is none. One that ended meanwhile, or that somebody deleted, is
// told of once; the next reading makes another one.
func (v *visit) collect(ctx context.Context, node *corev1.Node) (*snapshot.Snapshot, error) {
	begun, made := time.Now(), v.session == nil
	if made {
		if err := v.begin(ctx, node); err != nil {
			return nil, err
		}
	}
	s, err := v.session.Collect(ctx, nil)
	switch {
	case err == nil:
		v.failed = nil
		return s, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case made:
		v.failed, v.failedAt = err, time.Now()
	case time.Since(begun) >= v.reach.pods.Timeout:
		// Nobody answered: the pod may be as well as it was.
		return nil, err
	}
	v.close(ctx)
	return nil, err
}

// begin makes the pod.
func (v *visit) begin(ctx context.Context, node *corev1.Node) error {
	if v.failed != nil && v.node == node.Name && time.Since(v.failedAt) < failedPod {
		return v.failed
	}
	done, ok := v.reach.app.undo.begin()
	if !ok {
		return context.Canceled
	}
	v.node = node.Name
	s, err := v.open(ctx, node, int(v.reach.made.Add(1))-1)
	if err != nil {
		done()
		v.failed, v.failedAt = err, time.Now()
		return err
	}
	v.session, v.opened, v.done = s, time.Now(), done
	return nil
}

// close deletes the pod.
func (v *visit) close(ctx context.Context) {
	if err := v.session.Close(ctx); err != nil {
		v.left = append(v.left, err)
	}
	v.done()
	v.session, v.done = nil, nil
}

// leave waits for the reading that is going on, whose context is over, deletes the pod, and lets nothing be read any more.
// Pods that could not be deleted are named.
func (v *visit) leave() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	if v.session != nil {
		v.close(context.Background())
	}
	return errors.Join(v.left...)
}
