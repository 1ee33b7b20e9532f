// Command fuzz runs every fuzz target of the module, one after the other, since go test takes one at a time.
//
//	go run ./hack/fuzz -time 2m
//	go run ./hack/fuzz -time 10m -only 'netfilter|objects'
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	each := flag.String("time", "30s", "how long each target runs")
	only := flag.String("only", "", "run the targets whose \"folder Name\" matches this expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", *each, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run stops at the first target that finds something: go test has written the input to its testdata then.
func run(ctx context.Context, root, each, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	all, err := targets(root)
	if err != nil {
		return err
	}
	for _, t := range all {
		if !wanted.MatchString(t.folder + " " + t.name) {
			continue
		}
		fmt.Printf("%s %s for %s\n", t.folder, t.name, each)
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each, "./"+t.folder)
		cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("fuzz %s %s: %w", t.folder, t.name, err)
		}
	}
	return nil
}

// target is one fuzz function.
type target struct{ folder, name string }

// targets finds them, in the order of the files.
func targets(root string) ([]target, error) {
	declared := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)
	var out []target
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			out = append(out, target{filepath.ToSlash(folder), m[1]})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the fuzz targets: %w", err)
	}
	return out, nil
}
