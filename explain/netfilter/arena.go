package netfilter

// arena hands out the small objects of rules from slabs. A big node has hundreds of thousands of rules whose
// matches live exactly as long as their ruleset does, and one allocation serves many of them.
type arena struct {
	tcp       slab[TCP]
	udp       slab[UDP]
	mark      slab[Mark]
	conntrack slab[Conntrack]
	addrtype  slab[AddrType]
	statistic slab[Statistic]
	recent    slab[Recent]
	set       slab[SetMatch]
	translate slab[Translate]
	matches   list[Match]
}

// slab hands out pointers into blocks that double in size up to a limit.
type slab[T any] struct {
	free []T
	size int
}

func (s *slab[T]) new() *T {
	if len(s.free) == 0 {
		s.size = min(max(8, 2*s.size), 1024)
		s.free = make([]T, s.size)
	}
	p := &s.free[0]
	s.free = s.free[1:]
	return p
}

// list hands out copies of short lists.
type list[T any] struct {
	free []T
	size int
}

func (l *list[T]) copy(items []T) []T {
	if len(items) == 0 {
		return nil
	}
	if len(items) > len(l.free) {
		l.size = min(max(8, 2*l.size), 2048)
		l.free = make([]T, max(l.size, len(items)))
	}
	n := copy(l.free, items)
	out := l.free[:n:n]
	l.free = l.free[n:]
	return out
}
