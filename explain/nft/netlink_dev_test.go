package nft

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDev(t *testing.T) {
	files, _ := filepath.Glob(os.Getenv("NFT_DEV"))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			inNamespace(t, func(t *testing.T) { asListed(t, string(text), "x/x") })
		})
	}
}

func TestDevPy(t *testing.T) {
	files, _ := filepath.Glob(os.Getenv("NFT_PY"))
	rules, same := 0, 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			inNamespace(t, func(t *testing.T) {
				c := exec.Command("nft", "-i")
				f, _ := os.Open(file)
				c.Stdin = f
				out, _ := c.CombinedOutput()
				if os.Getenv("NFT_V") != "" {
					t.Log(string(out))
				}
				want, err := nftCommand(t, "", "list", "ruleset")
				if err != nil {
					t.Fatal(err)
				}
				r, err := ParseNetlink(capture(t), "nft.nl")
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range r.Problems {
					t.Logf("problem %s: %s", p.Text, p.Why)
				}
				a, b := strings.Split(want, "\n"), strings.Split(r.String(), "\n")
				rules += len(a)
				if len(a) != len(b) {
					t.Errorf("lines %d %d", len(a), len(b))
				}
				for i := range min(len(a), len(b)) {
					if a[i] != b[i] {
						t.Errorf("\n-%s\n+%s", a[i], b[i])
					} else {
						same++
					}
				}
				if os.Getenv("NFT_TEXT") != "" {
					sameAsText(t, r, r.String())
				}
			})
		})
	}
	t.Logf("%d of %d lines", same, rules)
}
