package explain

import (
	"github.com/svcnet/svcnet/explain/check"
	"github.com/svcnet/svcnet/explain/intent"
	"github.com/svcnet/svcnet/explain/report"
)

// findings runs the catalogue over the paths of service ports.
func (m *model) findings(ports []*intent.ServicePort, paths []report.Path) []report.Finding {
	on := m.checked()
	for _, sp := range ports {
		on.Ports = append(on.Ports, check.Port{ServicePort: sp, On: on, Cells: cellsOf(sp, paths)})
	}
	return check.Service(on.Ports)
}

// cellsOf are the paths of one service port, cell by cell.
func cellsOf(sp *intent.ServicePort, paths []report.Path) [][]report.Path {
	var out [][]report.Path
	for i := range paths {
		p := &paths[i]
		if p.Frontend.PortName != sp.PortName || p.Frontend.Protocol != sp.Protocol || !hasFrontend(sp, p.Frontend) {
			continue
		}
		if n := len(out); n > 0 && sameCell(&out[n-1][0], p) {
			out[n-1] = append(out[n-1], *p)
			continue
		}
		out = append(out, paths[i:i+1:i+1])
	}
	return out
}

func hasFrontend(sp *intent.ServicePort, f report.Frontend) bool {
	for _, g := range sp.Frontends {
		if string(g.Kind) == f.Kind && g.Addr.String() == f.Address && g.Port == f.Port {
			return true
		}
	}
	return false
}

func sameCell(a, b *report.Path) bool {
	return a.Frontend == b.Frontend && a.SourceClass == b.SourceClass && a.Source == b.Source
}
