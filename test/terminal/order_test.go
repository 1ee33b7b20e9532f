package terminal

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestOrder holds that package quiet is ready before bubbletea is, for every system. The order is that of the Go
// specification: of the packages whose imports are all ready, the one with the first path is next. Others than those that
// either needs change nothing of the order of these.
func TestOrder(t *testing.T) {
	const early, late = "github.com/svcnet/svcnet/tui/quiet", "github.com/charmbracelet/bubbletea"
	for _, system := range []string{"linux", "darwin", "windows"} {
		list := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, early, late)
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("%s: %v", system, err)
		}
		waits := map[string]map[string]bool{}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			imports := map[string]bool{}
			for _, i := range fields[1:] {
				imports[i] = true
			}
			waits[fields[0]] = imports
		}
		// C and unsafe are no packages.
		for _, imports := range waits {
			for i := range imports {
				if waits[i] == nil {
					delete(imports, i)
				}
			}
		}
		var order []string
		for len(waits) > 0 {
			next := ""
			for p, imports := range waits {
				if len(imports) == 0 && (next == "" || p < next) {
					next = p
				}
			}
			if next == "" {
				t.Fatalf("%s: nothing is ready, and %d packages are left", system, len(waits))
			}
			order = append(order, next)
			delete(waits, next)
			for _, imports := range waits {
				delete(imports, next)
			}
		}
		if e, l := slices.Index(order, early), slices.Index(order, late); e < 0 || l < 0 || e > l {
			t.Errorf("%s: %s is at %d and %s at %d, want it before that", system, early, e, late, l)
		}
	}
}
