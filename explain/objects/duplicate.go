package objects

import (
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newer tells whether fresh, read at line, replaces old, the object of the same name that was read before.
func (d *decoder) newer(old, fresh metav1.Object, name string, line int) bool {
	oldVersion, freshVersion := old.GetResourceVersion(), fresh.GetResourceVersion()
	if old.GetUID() == fresh.GetUID() && oldVersion == freshVersion && oldVersion != "" {
		return false
	}
	if equalObjects(old, fresh) {
		return false
	}
	// Resource versions are revisions of the store: the API server's own watch cache compares them as numbers.
	oldNumber, errOld := strconv.ParseUint(oldVersion, 10, 64)
	freshNumber, errFresh := strconv.ParseUint(freshVersion, 10, 64)
	switch {
	case errOld != nil || errFresh != nil:
		d.problem(line, name, true, "is given twice and differs: this later one counts")
		return true
	case freshNumber < oldNumber:
		d.problem(line, name, true, "is given twice: this one has the lower resourceVersion (%s, not %s) and does not count", freshVersion, oldVersion)
		return false
	}
	d.problem(line, name, true, "is given twice: this one has the higher resourceVersion (%s, not %s) and counts", freshVersion, oldVersion)
	return true
}

// equalObjects compares what was decoded, without where it was read.
func equalObjects(a, b metav1.Object) bool {
	switch a := a.(type) {
	case Service:
		return reflect.DeepEqual(a.Service, b.(Service).Service)
	case EndpointSlice:
		return reflect.DeepEqual(a.EndpointSlice, b.(EndpointSlice).EndpointSlice)
	case Endpoints:
		return reflect.DeepEqual(a.Endpoints, b.(Endpoints).Endpoints)
	case Node:
		return reflect.DeepEqual(a.Node, b.(Node).Node)
	case Pod:
		return reflect.DeepEqual(a.Pod, b.(Pod).Pod)
	case Namespace:
		return reflect.DeepEqual(a.Namespace, b.(Namespace).Namespace)
	case ConfigMap:
		return reflect.DeepEqual(a.ConfigMap, b.(ConfigMap).ConfigMap)
	case ClusterRole:
		return reflect.DeepEqual(a.ClusterRole, b.(ClusterRole).ClusterRole)
	case ClusterRoleBinding:
		return reflect.DeepEqual(a.ClusterRoleBinding, b.(ClusterRoleBinding).ClusterRoleBinding)
	}
	return false
}
