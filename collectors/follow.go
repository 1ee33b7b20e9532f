package collectors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// A Change is one that the API server told of a Service or an EndpointSlice while it was followed.
type Change struct {
	// Kind is Service or EndpointSlice; Service the name of the Service that it belongs to, empty for a slice of none.
	Kind, Namespace, Name, Service string
	// What is added, updated or deleted.
	What, ResourceVersion string
	// At is when it came in. Triggered is what the slice says of the change of pods that it follows, where this change is
	// another than the one before; Written when the API server wrote the object last, to the second. Zero: it does not say.
	At, Triggered, Written time.Time
}

// Objects are those of the API server, kept up to date by watches. Its methods may be called from several goroutines.
type Objects struct {
	api     *API
	node    string
	kinds   []*followed
	changed func(Change)
	// answers is called each time that a list or a watch is answered or not.
	answers func(error)
	now     func() time.Time
}

// followed is one kind of objects, each as its JSON on one line.
type followed struct {
	kind
	object, list runtime.Object
	owner        *Objects

	mu     sync.Mutex
	kept   map[string]keptObject
	synced bool
	// err is why the last list or watch was not answered; nil when it was.
	err error
	// known is closed once the kind was listed, or could not be.
	known chan struct{}
	once  sync.Once
}

type keptObject struct {
	json            []byte
	resourceVersion string
	triggered       string
}

// Follow lists and watches what Collect would read of the API, until ctx ends. node is the name of the node; empty: its
// pods are not followed. changed is told of changes after the first list, answers of whether the server answers; both
// are called from several goroutines and must not wait. Reading goes on with what is known when the server is gone.
func Follow(ctx context.Context, a *API, node string, changed func(Change), answers func(error)) (*Objects, error) {
	o := &Objects{api: a, node: node, changed: changed, answers: answers, now: time.Now}
	c, codec, err := a.watcher()
	if err != nil {
		return nil, fmt.Errorf("read the API: %w (check the kubeconfig)", err)
	}
	types := map[string][2]runtime.Object{
		"nodes.json":          {&corev1.Node{}, &corev1.NodeList{}},
		"endpointslices.json": {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		"services.json":       {&corev1.Service{}, &corev1.ServiceList{}},
		"pods.json":           {&corev1.Pod{}, &corev1.PodList{}},
	}
	// What goes wrong is told through answers.
	silent := klog.NewContext(ctx, logr.Discard())
	logger := logr.Discard()
	for _, k := range kinds {
		f := &followed{kind: k, object: types[k.file][0], list: types[k.file][1], owner: o, kept: map[string]keptObject{}, known: make(chan struct{})}
		o.kinds = append(o.kinds, f)
		if k.ofNode && node == "" {
			f.once.Do(func() { close(f.known) })
			continue
		}
		r := cache.NewReflectorWithOptions(f.listWatch(c, codec, node), f.object, f, cache.ReflectorOptions{Name: "svcnet", Logger: &logger})
		go r.RunWithContext(silent)
	}
	return o, nil
}

// watcher is a client for lists and watches of decoded objects, which take as long as they take.
func (a *API) watcher() (rest.Interface, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, version)
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	c := rest.CopyConfig(a.Config)
	c.UserAgent, c.WarningHandler = "svcnet", rest.NoWarnings{}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.UnversionedRESTClientFor(c)
	return r, runtime.NewParameterCodec(scheme), err
}

func (f *followed) listWatch(c rest.Interface, codec runtime.ParameterCodec, node string) *cache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		if f.ofNode {
			o.FieldSelector = "spec.nodeName=" + node
		}
		return c.Get().AbsPath(f.path).SpecificallyVersionedParams(&o, codec, schema.GroupVersion{Version: "v1"})
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			within, cancel := context.WithTimeout(ctx, cmp.Or(f.owner.api.Timeout, DefaultAPITimeout))
			defer cancel()
			list := f.list.DeepCopyObject()
			err := request(o).Do(within).Into(list)
			f.answered(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(o).Watch(ctx)
			if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
				return w, err // an older server, which is asked for a list next
			}
			f.answered(ctx, err)
			return w, err
		},
	}
}

// answered notes whether the server answered.
func (f *followed) answered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	if err != nil {
		f.once.Do(func() { close(f.known) })
	}
	f.owner.answers(f.owner.Err())
}

// Err is why the server does not answer for some kind, in one line; nil while it does for all.
func (o *Objects) Err() error {
	for _, f := range o.kinds {
		f.mu.Lock()
		err := f.err
		f.mu.Unlock()
		if err != nil {
			return errors.New(o.api.missed(f.file, f.resource, err).Error)
		}
	}
	return nil
}

// Known waits until every kind was listed or could not be.
func (o *Objects) Known(ctx context.Context) error {
	for _, f := range o.kinds {
		select {
		case <-f.known:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Evidence are the objects as Collect would have read them now. A kind that was never listed has the status of the attempt.
func (o *Objects) Evidence() []snapshot.Evidence {
	var out []snapshot.Evidence
	for _, f := range o.kinds {
		out = append(out, f.evidence())
	}
	return out
}

func (f *followed) evidence() snapshot.Evidence {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.synced:
		items := make([]json.RawMessage, 0, len(f.kept))
		for _, key := range slices.Sorted(maps.Keys(f.kept)) {
			items = append(items, f.kept[key].json)
		}
		return evidence(f.file, snapshot.Objects, listOf(f.kind, items))
	case f.err != nil:
		return f.owner.api.missed(f.file, f.resource, f.err)
	case f.ofNode && f.owner.node == "":
		return missed(f.file, snapshot.Objects, snapshot.NotCollected, errNodeUnknown)
	}
	return missed(f.file, snapshot.Objects, snapshot.NotCollected, fmt.Errorf("read %s: no answer yet", f.resource))
}

// Add, Update, Delete, Replace and Resync are what a reflector does with what the server tells.
func (f *followed) Add(obj any) error    { return f.put(obj) }
func (f *followed) Update(obj any) error { return f.put(obj) }

func (f *followed) put(obj any) error {
	key, kept, m, err := keep(obj)
	if err != nil {
		return err
	}
	f.mu.Lock()
	was, there := f.kept[key]
	f.kept[key] = kept
	f.mu.Unlock()
	if f.synced && was.resourceVersion != kept.resourceVersion {
		f.tell(m, was, kept, there, false)
	}
	return nil
}

// Delete forgets an object.
func (f *followed) Delete(obj any) error {
	key, kept, m, err := keep(obj)
	if err != nil {
		return err
	}
	f.mu.Lock()
	was, there := f.kept[key]
	delete(f.kept, key)
	f.mu.Unlock()
	if there {
		f.tell(m, was, kept, true, true)
	}
	return nil
}

// Replace takes in a whole list: the first one, or one after the server was gone, which tells what happened meanwhile.
func (f *followed) Replace(list []any, _ string) error {
	type told struct {
		m         changedObject
		was, kept keptObject
		there     bool
		gone      bool
	}
	var news []told
	next := make(map[string]keptObject, len(list))
	f.mu.Lock()
	for _, obj := range list {
		key, kept, m, err := keep(obj)
		if err != nil {
			f.mu.Unlock()
			return err
		}
		next[key] = kept
		if was, there := f.kept[key]; was.resourceVersion != kept.resourceVersion {
			news = append(news, told{m, was, kept, there, false})
		}
	}
	for key, was := range f.kept {
		if _, ok := next[key]; ok {
			continue
		}
		obj := f.object.DeepCopyObject()
		if json.Unmarshal(was.json, obj) == nil {
			if _, kept, m, err := keep(obj); err == nil {
				news = append(news, told{m, was, kept, true, true})
			}
		}
	}
	first := !f.synced
	f.kept, f.synced = next, true
	f.mu.Unlock()
	f.once.Do(func() { close(f.known) })
	if first {
		return nil
	}
	for _, n := range news {
		f.tell(n.m, n.was, n.kept, n.there, n.gone)
	}
	return nil
}

// Resync does nothing: nobody needs to hear twice of what did not change.
func (f *followed) Resync() error { return nil }

// changedObject is what a change says of its object.
type changedObject struct {
	namespace, name, service string
	written                  time.Time
}

// keep is an object as it is kept, and what is told of it. Who wrote which field is left out.
func keep(obj any) (key string, k keptObject, c changedObject, err error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", k, c, fmt.Errorf("keep an object: %w", err)
	}
	c = changedObject{namespace: m.GetNamespace(), name: m.GetName(), service: m.GetName()}
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.Time.After(c.written) {
			c.written = f.Time.Time
		}
	}
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		c.service = s.Labels[discoveryv1.LabelServiceName]
		k.triggered = s.Annotations[corev1.EndpointsLastChangeTriggerTime]
	}
	m.SetManagedFields(nil)
	k.resourceVersion = m.GetResourceVersion()
	if k.json, err = json.Marshal(obj); err != nil {
		return "", k, c, fmt.Errorf("keep %s: %w", m.GetName(), err)
	}
	return c.namespace + "\x00" + c.name, k, c, nil
}

// tell tells of a change.
func (f *followed) tell(m changedObject, was, kept keptObject, there, gone bool) {
	named := strings.TrimSuffix(f.kind.list, "List")
	if named != "Service" && named != "EndpointSlice" {
		return
	}
	c := Change{
		Kind: named, Namespace: m.namespace, Name: m.name, Service: m.service, What: "added",
		ResourceVersion: kept.resourceVersion, At: f.owner.now(), Written: m.written,
	}
	switch {
	case gone:
		c.What = "deleted"
	case there:
		c.What = "updated"
	}
	if kept.triggered != was.triggered && !gone {
		if t, err := time.Parse(time.RFC3339Nano, kept.triggered); err == nil {
			c.Triggered = t
		}
	}
	f.owner.changed(c)
}
