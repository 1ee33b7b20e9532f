package dataplane

// Numbering numbers the endpoints of a service port in the order in which its rules and real servers name them. The order
// in which they are written down differs from port to port and from node to node, and makes no difference: service ports
// that differ in nothing else read the same.
type Numbering struct {
	of  []int // of each endpoint its number + 1, 0 where it has none yet
	met []int // the endpoints by number
}

func (n *Numbering) reset(endpoints int) {
	if cap(n.of) < endpoints {
		n.of = make([]int, endpoints)
	}
	n.of = n.of[:endpoints]
	clear(n.of)
	n.met = n.met[:0]
}

// Number is the number of endpoint i, the next one when it is named for the first time.
func (n *Numbering) Number(i int) int {
	if n.of[i] == 0 {
		n.met = append(n.met, i)
		n.of[i] = len(n.met)
	}
	return n.of[i] - 1
}

// All are the endpoints in the order of their numbers. Those that nothing has named get theirs in the order of the objects.
// The list holds until the next service port.
func (n *Numbering) All() []int {
	for i := range n.of {
		n.Number(i)
	}
	return n.met
}
