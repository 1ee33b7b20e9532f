package explain

import (
	"errors"
	"slices"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/host"
	"github.com/svcnet/svcnet/explain/ipset"
	"github.com/svcnet/svcnet/explain/ipvs"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/explain/traits"
)

// noneOf takes in that a node has no sets, or no virtual servers: that is known then, which it is not where nobody
// looked.
func (r *reader) noneOf(e *snapshot.Evidence) {
	if e.Status != snapshot.Empty && e.Status != snapshot.Absent {
		return
	}
	switch e.Format {
	case snapshot.IPSetSave, snapshot.IPSetList:
		if r.sets == nil {
			r.sets = []*ipset.Set{}
		}
	case snapshot.IPVSSave, snapshot.IPVSList:
		r.virtualServers().HasServices = true
	}
}

// virtualServers is the table of IPVS, made at the first question.
func (r *reader) virtualServers() *ipvs.Table {
	if r.model.kernel.IPVS == nil {
		r.model.kernel.IPVS = &ipvs.Table{}
	}
	return r.model.kernel.IPVS
}

// readSets reads a capture of IP sets.
func (r *reader) readSets(e *snapshot.Evidence, src *report.Source, fail func(snapshot.Status, string, ...any)) {
	sets, problems, err := ipset.Parse(e.Text(), e.File)
	said(problems, err, src, fail)
	if err == nil || errors.Is(err, host.ErrEmpty) {
		r.sets = append(r.sets, sets...)
		if r.sets == nil {
			r.sets = []*ipset.Set{}
		}
	}
}

// readIPVS reads a capture of virtual servers or of connections through them.
func (r *reader) readIPVS(e *snapshot.Evidence, src *report.Source, fail func(snapshot.Status, string, ...any)) {
	problems, err := ipvs.Parse(r.virtualServers(), e.Text(), e.File)
	said(problems, err, src, fail)
}

// said puts what a parser could not read into the status of a source.
func said(problems []host.Problem, err error, src *report.Source, fail func(snapshot.Status, string, ...any)) {
	switch {
	case errors.Is(err, host.ErrEmpty):
		src.Status = string(snapshot.Empty)
	case err != nil:
		fail(snapshot.Failed, "%v", err)
	case len(problems) > 0:
		p := problems[0]
		fail(snapshot.Status(src.Status), "%d lines passed over, the first is line %d: %s", len(problems), p.Line, p.Why)
	}
}

// setsOf are the sets that rules ask; nil when none were captured.
func setsOf(captured []*ipset.Set) map[string]*netfilter.Set {
	if captured == nil {
		return nil
	}
	return netfilter.SetsOf(captured)
}

// virtualServer is the first virtual server of kube-proxy's as a fact: one whose address kube-ipvs0 has, which nobody
// but kube-proxy makes.
func (m *model) virtualServer() traits.Fact {
	if m.kernel.IPVS == nil {
		return traits.Fact{}
	}
	for i := range m.kernel.IPVS.Services {
		s := &m.kernel.IPVS.Services[i]
		if slices.ContainsFunc(m.kernel.Host.Addrs, func(a host.Addr) bool { return a.Link == check.KubeIPVS0 && a.Prefix.Addr() == s.Addr }) {
			return traits.Fact{File: s.File, Line: s.Line, Text: s.String()}
		}
	}
	return traits.Fact{}
}
