package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Watch follows Services, EndpointSlices and the node until ctx ends, and keeps Objects as the API server says. synced is
// closed once all of them were listed. said is told, from several goroutines, each time that the server stops answering,
// and with nil when it does again.
func Watch(ctx context.Context, c *rest.Config, o *Objects, said func(error)) (synced <-chan struct{}, err error) {
	client, codec, err := watcher(c)
	if err != nil {
		return nil, fmt.Errorf("follow the API: %w (check the kubeconfig)", err)
	}
	// Services of one namespace are read there alone, so that a user who may read no others can serve them.
	namespace := ""
	for s := range o.only {
		if namespace != "" && namespace != s.Namespace {
			namespace = ""
			break
		}
		namespace = s.Namespace
	}
	in := func(group, resource string) string {
		if namespace == "" {
			return group + "/" + resource
		}
		return fmt.Sprintf("%s/namespaces/%s/%s", group, namespace, resource)
	}
	w := &watches{said: said, failing: map[string]error{}, done: make(chan struct{})}
	kinds := []*followed{
		{
			path: in("/api/v1", "services"), object: &corev1.Service{}, list: &corev1.ServiceList{},
			labels: "!service.kubernetes.io/service-proxy-name", objects: o,
			replace: func(list []any) { o.replaceServices(typed[*corev1.Service](list)) },
		},
		{
			path: in("/apis/discovery.k8s.io/v1", "endpointslices"), object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{},
			labels: "!" + corev1.IsHeadlessService, objects: o,
			replace: func(list []any) { o.replaceSlices(typed[*discoveryv1.EndpointSlice](list)) },
		},
		{
			path: "/api/v1/nodes", object: &corev1.Node{}, list: &corev1.NodeList{}, fields: "metadata.name=" + o.node, objects: o,
			replace: func(list []any) {
				for _, n := range list {
					_ = o.Add(n) // it never fails
				}
			},
		},
	}
	w.waiting = len(kinds)
	silent := klog.NewContext(ctx, logr.Discard())
	logger := logr.Discard()
	for _, k := range kinds {
		k.watches = w
		r := cache.NewReflectorWithOptions(k.listWatch(client, codec), k.object, k, cache.ReflectorOptions{Name: "svcnet", Logger: &logger})
		go r.RunWithContext(silent)
	}
	return w.done, nil
}

func typed[T any](list []any) []T {
	out := make([]T, 0, len(list))
	for _, x := range list {
		if v, ok := x.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// watcher is a client for lists and watches. Objects come as protobuf, which costs a fraction of JSON.
func watcher(config *rest.Config) (rest.Interface, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	c := rest.CopyConfig(config)
	c.UserAgent, c.WarningHandler = "svcnet proxy", rest.NoWarnings{}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.UnversionedRESTClientFor(c)
	return r, runtime.NewParameterCodec(scheme), err
}

// watches are all kinds that are followed.
type watches struct {
	said func(error)

	mu      sync.Mutex
	waiting int
	done    chan struct{}
	failing map[string]error
}

// answered notes whether the server answers for a kind.
func (w *watches) answered(path string, err error) {
	w.mu.Lock()
	before := len(w.failing)
	if err != nil {
		w.failing[path] = err
	} else {
		delete(w.failing, path)
	}
	after := len(w.failing)
	w.mu.Unlock()
	switch {
	case before == 0 && after > 0:
		w.said(err)
	case before > 0 && after == 0:
		w.said(nil)
	}
}

// listed notes that one more kind was listed.
func (w *watches) listed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting--; w.waiting == 0 {
		close(w.done)
	}
}

// followed is one kind of objects. It is the store of a reflector.
type followed struct {
	path, labels, fields string
	object, list         runtime.Object
	objects              *Objects
	replace              func([]any)
	watches              *watches
	once                 sync.Once
}

// requestTimeout bounds a list; a watch takes as long as it takes.
const requestTimeout = time.Minute

func (f *followed) listWatch(c rest.Interface, codec runtime.ParameterCodec) *cache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = f.labels, f.fields
		return c.Get().AbsPath(f.path).SpecificallyVersionedParams(&o, codec, schema.GroupVersion{Version: "v1"})
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			within, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			list := f.list.DeepCopyObject()
			err := request(o).Do(within).Into(list)
			f.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(o).Watch(ctx)
			if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
				return w, err // an older server, which is asked for a list next
			}
			f.note(ctx, err)
			return w, err
		},
	}
}

func (f *followed) note(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.watches.answered(f.path, err)
	}
}

// Add, Update, Delete, Replace and Resync are what a reflector does with what the server tells.
func (f *followed) Add(obj any) error { return f.objects.Add(obj) }

// Update takes in an object that changed.
func (f *followed) Update(obj any) error { return f.objects.Add(obj) }

// Delete forgets an object.
func (f *followed) Delete(obj any) error { return f.objects.Delete(obj) }

// Replace takes in a whole list.
func (f *followed) Replace(list []any, _ string) error {
	f.replace(list)
	f.once.Do(f.watches.listed)
	return nil
}

// Resync does nothing: what did not change is in the tables.
func (f *followed) Resync() error { return nil }
