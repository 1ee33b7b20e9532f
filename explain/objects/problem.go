package objects

import "fmt"

// Problem is something about the input that a reader should know: an object that could not be decoded, or
// one that was taken in a way that is not obvious.
type Problem struct {
	File string
	Line int // where the object or the broken text begins, from 1
	// Object is "Kind namespace/name" as far as it is known, or empty.
	Object string
	Why    string
	// Taken is true when the object counts all the same; otherwise it is missing from the set, which must
	// not be shown as its absence from the cluster.
	Taken bool
}

func (p Problem) String() string {
	if p.Object == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Why)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Object, p.Why)
}
