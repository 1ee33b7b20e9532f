package objects

import "testing"

// TestMemory: what two nodes give byte for byte is decoded once, what differs is not, and what nobody gives is forgotten.
func TestMemory(t *testing.T) {
	const web, db = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"store"},"spec":{"clusterIP":"10.96.0.1"}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"db"},"spec":{"clusterIP":"10.96.0.2"}}`
	var m Memory
	node := func(file string, objects ...string) *Set {
		t.Helper()
		m.Turn()
		set := &Set{}
		for _, o := range objects {
			m.Decode(set, []byte(o), file)
		}
		return set
	}
	first, second := node("a", web, db), node("b", web, db)
	if first.Services[0].Service != second.Services[0].Service {
		t.Error("the same Service was decoded twice")
	}
	if a, b := first.Services[0].File, second.Services[0].File; a != "a" || b != "b" {
		t.Errorf("read from %s and %s", a, b)
	}
	// An object without a namespace is taken to be in one each time, with the remark.
	set := &Set{}
	if p := m.Decode(set, []byte(db), "c"); len(p) != 1 || set.Services[0].Namespace != "default" {
		t.Errorf("problems %v, namespace %q", p, set.Services[0].Namespace)
	}
	changed := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"store"},"spec":{"clusterIP":"10.96.0.9"}}`
	if third := node("c", changed); third.Services[0].Spec.ClusterIP != "10.96.0.9" {
		t.Errorf("a Service that changed has the address %s", third.Services[0].Spec.ClusterIP)
	}
	node("d")
	node("e")
	if n := len(m.now) + len(m.before); n != 0 {
		t.Errorf("%d objects are kept that two nodes did not give", n)
	}
}
