package objects

import (
	"encoding/json"
	"runtime"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decoding the objects of a large cluster takes longer than everything else that is done with a node, and one object knows
// nothing of the others: those of a long list are decoded by all CPUs, and then taken in their order.
const (
	longList = 256
	// stretch is how many elements one goroutine takes at a time.
	stretch = 64
)

// ahead is an element of a list, looked at before its turn.
type ahead struct {
	header header
	// object is nil, with no error, for what is decoded when its turn comes.
	object metav1.Object
	err    error
}

// aheadOf looks at all elements of a list of objects; nil where that is no gain.
func (d *decoder) aheadOf(data []byte, items []span, implied metav1.TypeMeta) []ahead {
	// What is remembered is not decoded again.
	if len(items) < longList || runtime.GOMAXPROCS(0) == 1 || d.memory.knows() {
		return nil
	}
	out := make([]ahead, len(items))
	next := make(chan int)
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for from := range next {
				for i := from; i < min(from+stretch, len(items)); i++ {
					out[i] = aheadOf(data, items[i], implied)
				}
			}
		})
	}
	for from := 0; from < len(items); from += stretch {
		next <- from
	}
	close(next)
	running.Wait()
	return out
}

func aheadOf(data []byte, v span, implied metav1.TypeMeta) (a ahead) {
	if data[v.start] != '{' {
		return a
	}
	s := &scanner{data: data[:v.end], pos: v.start}
	a.header = s.header(true)
	if a.header.broken || a.header.list {
		return a
	}
	meta := a.header.meta
	if meta.Kind == "" {
		meta = implied
	}
	// The kinds of which a cluster has many.
	var o metav1.Object
	switch meta.APIVersion + " " + meta.Kind {
	case "v1 Service":
		o = &corev1.Service{}
	case "v1 Endpoints":
		o = &corev1.Endpoints{}
	case "v1 Pod":
		o = &corev1.Pod{}
	case "discovery.k8s.io/v1 EndpointSlice":
		o = &discoveryv1.EndpointSlice{}
	default:
		return a
	}
	if a.err = json.Unmarshal(data[v.start:v.end], o); a.err == nil {
		a.object = o
	}
	return a
}
