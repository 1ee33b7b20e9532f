package plan

import (
	"fmt"
	"slices"

	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/report"
)

// Standing is where an object stands that a step changes: as it was before, as it is after, or otherwise, because
// somebody wrote it since.
type Standing int

// The standings. An object can be at neither; it is never said to be at both: where Was and Will are equal it is Done.
const (
	// Otherwise: somebody wrote it since.
	Otherwise Standing = iota
	// Before: it is as it was before the step.
	Before
	// Done: it is as the step leaves it.
	Done
)

// String is for messages: "as it was before", "as the step leaves it", "changed by somebody since".
func (s Standing) String() string {
	switch s {
	case Before:
		return "as it was before"
	case Done:
		return "as the step leaves it"
	}
	return "changed by somebody since"
}

// A lookup finds the object of an edit in a node that was read anew, and prints it as a mender prints Was and Will: line
// by line, without counters and handles. there is false where the node has no such object. An error says that the node
// was not read well enough to tell, and why.
type lookup func(n *check.Node, e report.RepairEdit) (lines []string, there bool, err error)

// lookups by the kind of the step.
var lookups = []struct {
	kind string
	find lookup
}{
	{kindIPTables, findIPTables},
	{kindIPSet, findSet},
	{kindIPVS, findServer},
	{kindAddress, findAddress},
	{kindConntrack, findFlows},
	{kindNFTables, findNFTables},
	{kindRoute, findRoute},
	{kindSysctl, findSysctl},
}

// Find is the present content of the object that an edit of a step changes.
//
// Errors: the kind of the step is not known (a journal of another release), or the node was not read well enough to tell.
func Find(n *check.Node, kind string, e report.RepairEdit) (lines []string, there bool, err error) {
	for _, l := range lookups {
		if l.kind == kind {
			return l.find(n, e)
		}
	}
	return nil, false, fmt.Errorf("find %s of %s: steps of kind %q are not known here (is the journal of another release?)", e.Object, e.Table, kind)
}

// StandingOf says where the object of one edit stands.
func StandingOf(n *check.Node, kind string, e report.RepairEdit) (Standing, error) {
	lines, there, err := Find(n, kind, e)
	if err != nil {
		return Otherwise, err
	}
	is := func(want []string, absent bool) bool {
		return there != absent && (absent || slices.Equal(lines, want))
	}
	switch {
	case is(e.Will, e.Remove):
		return Done, nil
	case is(e.Was, e.Absent):
		return Before, nil
	}
	return Otherwise, nil
}
