package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decode adds the objects in data, which was read from file, to set. Data is what kubectl prints or takes:
// YAML or JSON, one or many documents, lists within lists. It is strict about nothing: unknown fields are
// passed over, an object without a namespace is in "default", and one that does not decode becomes a
// Problem while the others go on. Problems come in the order of the file.
//
// The same object twice (same UID and resourceVersion, or equal throughout) counts once. Of two that differ
// the one with the higher resourceVersion counts, or the later one where these are no numbers.
func Decode(set *Set, data []byte, file string) []Problem {
	return (&decoder{set: set, file: file}).decode(data)
}

func (d *decoder) decode(data []byte) []Problem {
	if d.set.places == nil {
		d.set.index()
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if body := bytes.TrimLeft(data, " \t\r\n"); len(body) > 0 && (body[0] == '{' || body[0] == '[') && d.json(data) {
		return d.problems
	}
	d.yaml(data)
	return d.problems
}

// maxNesting bounds lists within lists.
const maxNesting = 8

type decoder struct {
	set    *Set
	file   string
	memory *Memory // nil: none
	// ahead is the object that is taken, where it was decoded before its turn.
	ahead    ahead
	problems []Problem
}

func (d *decoder) problem(line int, object string, taken bool, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Object: object, Why: fmt.Sprintf(format, args...), Taken: taken})
}

// object takes one object, no list, in JSON.
func (d *decoder) object(raw []byte, line int, meta metav1.TypeMeta) {
	if meta.Kind == "" {
		d.problem(line, "", false, "not a Kubernetes object: it has no kind")
		return
	}
	switch meta.APIVersion + " " + meta.Kind {
	case "v1 Service":
		decodeInto(d, raw, line, meta, &d.set.Services, true, func(o *corev1.Service, e Evidence) Service { return Service{o, e} })
	case "v1 Endpoints":
		decodeInto(d, raw, line, meta, &d.set.Endpoints, true, func(o *corev1.Endpoints, e Evidence) Endpoints { return Endpoints{o, e} })
	case "v1 Node":
		decodeInto(d, raw, line, meta, &d.set.Nodes, false, func(o *corev1.Node, e Evidence) Node { return Node{o, e} })
	case "v1 Pod":
		decodeInto(d, raw, line, meta, &d.set.Pods, true, func(o *corev1.Pod, e Evidence) Pod { return Pod{o, e} })
	case "v1 Namespace":
		decodeInto(d, raw, line, meta, &d.set.Namespaces, false, func(o *corev1.Namespace, e Evidence) Namespace { return Namespace{o, e} })
	case "v1 ConfigMap":
		decodeInto(d, raw, line, meta, &d.set.ConfigMaps, true, func(o *corev1.ConfigMap, e Evidence) ConfigMap { return ConfigMap{o, e} })
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		decodeInto(d, raw, line, meta, &d.set.ClusterRoles, false, func(o *rbacv1.ClusterRole, e Evidence) ClusterRole { return ClusterRole{o, e} })
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		decodeInto(d, raw, line, meta, &d.set.RoleBindings, false, func(o *rbacv1.ClusterRoleBinding, e Evidence) ClusterRoleBinding {
			return ClusterRoleBinding{o, e}
		})
	case "discovery.k8s.io/v1 EndpointSlice":
		decodeInto(d, raw, line, meta, &d.set.EndpointSlices, true, func(o *discoveryv1.EndpointSlice, e Evidence) EndpointSlice { return EndpointSlice{o, e} })
	case "discovery.k8s.io/v1beta1 EndpointSlice":
		decodeInto(d, raw, line, meta, &d.set.EndpointSlices, true, func(o *discoveryv1beta1.EndpointSlice, e Evidence) EndpointSlice {
			return EndpointSlice{fromV1beta1(o), e}
		})
	default:
		d.ignore(meta)
	}
}

func (d *decoder) ignore(meta metav1.TypeMeta) {
	i, known := d.set.ignored[meta]
	if !known {
		i = len(d.set.Ignored)
		d.set.ignored[meta] = i
		d.set.Ignored = append(d.set.Ignored, Ignored{APIVersion: meta.APIVersion, Kind: meta.Kind})
	}
	d.set.Ignored[i].Count++
}

// decodeInto decodes raw as a T, wraps it with its evidence and adds it to list, once.
func decodeInto[T, W any, P interface {
	*T
	metav1.Object
}](d *decoder, raw []byte, line int, meta metav1.TypeMeta, list *[]W, namespaced bool, wrap func(P, Evidence) W) {
	o, err := remembered(d.memory, raw, meta, func() (P, error) {
		if d.ahead.err != nil {
			return nil, d.ahead.err
		}
		o, decoded := d.ahead.object.(P)
		if !decoded {
			o = P(new(T))
			if err := json.Unmarshal(raw, o); err != nil {
				return nil, err
			}
		}
		o.SetManagedFields(nil) // half of an object's bytes, and nothing for us
		if !namespaced {
			o.SetNamespace("")
		}
		return o, nil
	})
	if err != nil {
		d.problem(line, objectName(meta.Kind, nameOf(raw)), false, "does not decode: %s", reasonOf(err))
		return
	}
	if o.GetName() == "" {
		d.problem(line, meta.Kind, false, "not a Kubernetes object: it has no name")
		return
	}
	if namespaced && o.GetNamespace() == "" {
		own := *o // the one that is remembered has none, and the problem is told each time
		o = P(&own)
		o.SetNamespace(metav1.NamespaceDefault)
		d.problem(line, objectName(meta.Kind, nameKey{o.GetNamespace(), o.GetName()}), true, "has no namespace: taken to be in %q", metav1.NamespaceDefault)
	}
	fresh := wrap(o, Evidence{d.file, line})
	key := objectKey{meta.Kind, o.GetNamespace(), o.GetName()}
	i, known := d.set.places[key]
	if !known {
		d.set.places[key] = len(*list)
		*list = append(*list, fresh)
		return
	}
	if d.newer(any((*list)[i]).(metav1.Object), any(fresh).(metav1.Object), objectName(meta.Kind, nameKey{key.namespace, key.name}), line) {
		(*list)[i] = fresh
	}
}

// objectName is "Kind namespace/name" as far as these are known.
func objectName(kind string, key nameKey) string {
	switch {
	case key.name == "":
		return kind
	case key.namespace == "":
		return kind + " " + key.name
	}
	return kind + " " + key.namespace + "/" + key.name
}

// nameOf reads what it can of the name of an object that does not decode.
func nameOf(raw []byte) nameKey {
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	if json.Unmarshal(raw, &o) != nil {
		return nameKey{} // wrong even there
	}
	return nameKey{o.Metadata.Namespace, o.Metadata.Name}
}

// reasonOf says what is wrong with a value in the words of the object rather than of Go.
func reasonOf(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := wrong.Field
		if field == "" {
			return fmt.Sprintf("it is a %s where an object is expected", wrong.Value)
		}
		return fmt.Sprintf("%s is a %s, which the API does not allow there", field, wrong.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
