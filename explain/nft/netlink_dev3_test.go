package nft

import (
	"os/exec"
	"strings"
	"testing"
)

func TestDevIPT(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		out, err := exec.Command("sh", "/tmp/w/ipt.sh").CombinedOutput()
		t.Log(string(out), err)
		want, _ := nftCommand(t, "", "list", "ruleset")
		r, err := ParseNetlink(capture(t), "nft.nl")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Problems {
			t.Log(p)
		}
		a, b := strings.Split(want, "\n"), strings.Split(r.String(), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Logf("\n-%s\n+%s", a[i], b[i])
			}
		}
	})
}
