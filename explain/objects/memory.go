package objects

import (
	"crypto/sha256"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Memory keeps decoded objects from one node to the next: every node of a cluster gives the same Services, and decoding
// them takes longer than everything else that is done with them. An object that was given before, byte for byte, is
// shared between the sets, so nobody may change one.
//
// What it holds is what the last two nodes gave. The zero value is ready; it is not safe for concurrent use.
type Memory struct{ now, before map[memoryKey]metav1.Object }

// memoryKey is the sum of an object's bytes, and as what they were decoded.
type memoryKey struct {
	sum  [sha256.Size]byte
	meta metav1.TypeMeta
}

// Turn begins another node: what neither it nor the one before gives is forgotten.
func (m *Memory) Turn() {
	if m != nil {
		m.before, m.now = m.now, make(map[memoryKey]metav1.Object, len(m.now))
	}
}

// Decode is Decode with what is remembered. A nil Memory remembers nothing.
func (m *Memory) Decode(set *Set, data []byte, file string) []Problem {
	return (&decoder{set: set, file: file, memory: m}).decode(data)
}

// knows tells whether anything is remembered of an earlier node.
func (m *Memory) knows() bool { return m != nil && len(m.before) > 0 }

// get returns the object that raw was decoded to before, nil when it was not.
func (m *Memory) get(key memoryKey) metav1.Object {
	if o, ok := m.now[key]; ok {
		return o
	}
	o, ok := m.before[key]
	if !ok {
		return nil
	}
	m.put(key, o)
	return o
}

func (m *Memory) put(key memoryKey, o metav1.Object) {
	if m.now == nil {
		m.now = make(map[memoryKey]metav1.Object)
	}
	m.now[key] = o
}

// remembered decodes raw, unless it was decoded before.
func remembered[T any, P interface {
	*T
	metav1.Object
}](m *Memory, raw []byte, meta metav1.TypeMeta, fresh func() (P, error)) (P, error) {
	if m == nil {
		return fresh()
	}
	key := memoryKey{sha256.Sum256(raw), meta}
	if o, ok := m.get(key).(P); ok {
		return o, nil
	}
	o, err := fresh()
	if err == nil {
		m.put(key, o)
	}
	return o, err
}
