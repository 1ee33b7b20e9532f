package tui

import (
	"strings"
	"testing"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

func TestSources(t *testing.T) {
	s := demoNode(t)
	s.Evidence = append(s.Evidence,
		snapshot.Evidence{File: "sysctl.txt", Format: snapshot.Sysctl, Status: snapshot.Denied, Error: "read sysctls: permission denied (run as root)"},
		snapshot.Evidence{File: "conntrack.txt", Format: snapshot.Conntrack, Status: snapshot.Absent})
	s.Arrange()
	c := newConsole(t, pagedFeed(s), Look{}, 120, 30).press("5")
	c.shows("›✗ denied        sysctl", "not allowed to read it", "read sysctls: permission denied (run as root)",
		"? 3 checks not answered without it:", "conntrack-table-full, ip-forward-off", "✓ absent", "? not-collected listening sockets")
	if text := c.screen(); strings.Index(text, "✗ denied") > strings.Index(text, "? not-collected") || strings.Index(text, "? not-collected") > strings.Index(text, "✓ absent") {
		t.Errorf("what failed is not first:\n%s", text)
	}
	c.press("/iptables !ip6<enter>").shows("iptables-save.txt").lacks("ip6tables", "sysctl")
	c.press("<esc>/id:ip-forward<enter>").shows("✗ denied").lacks("✓ ok")
	c.press("<enter>").shows("Sources (3 not read) › sysctl")
}

func TestStatus(t *testing.T) {
	c := newConsole(t, pagedFeed(demoNode(t)), Look{}, 100, 30).press("4")
	c.shows("✗ kube-proxy 1.36.3", "healthy but not programmed", "Rests on", "evidence proxyMode.txt:1", "6 programmed as asked for, 1 differ")
	c.press("<end>").shows("masqueradeMark", "0x4000", "This program", "version   v0.0.0", "evidence  files", "read      12:00:00", "never: these are files")
}
