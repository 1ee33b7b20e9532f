// Command fleet measures audits of many nodes: bundles of simulated nodes are written to a folder and audited by one
// process, as `svcnet audit -f FOLDER` does it; another process decompresses and parses the same bundles and does nothing
// else. It prints the CPU time of both for each node, their ratio, and the peak memory of the audit.
//
//	go run ./hack/fleet [-nodes 10] [-compare 50] [-services 10000] [-endpoints 5] [-dir FOLDER] [-svcnet PROGRAM]
//
// A bundle of 10,000 Services takes about 8 MB. With -dir bundles that are there already are used again, and kept.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain/netfilter"
	"github.com/svcnet/svcnet/explain/objects"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/scale"
)

func main() {
	nodes := flag.Int("nodes", 10, "number of nodes")
	services := flag.Int("services", 10000, "number of Services")
	endpoints := flag.Int("endpoints", 5, "endpoints of each")
	compare := flag.Int("compare", 50, "how many of the bundles the other process decompresses and parses, at most")
	dir := flag.String("dir", "", "folder for the bundles; empty: one that is removed")
	program := flag.String("svcnet", "", "the program; empty: it is built")
	child := flag.Bool("parse", false, "only decompress and parse the bundles of -dir: what this program starts itself for")
	flag.Parse()
	var err error
	if *child {
		err = parse(*dir, *compare)
	} else {
		err = run(*dir, *program, *nodes, *compare, *services, *endpoints)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(dir, program string, nodes, compare, services, endpoints int) error {
	compare = min(compare, nodes)
	if program == "" {
		temp, err := os.MkdirTemp("", "svcnet-fleet")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		program = filepath.Join(temp, "svcnet")
		build := exec.Command("go", "build", "-o", program, "./cmd/kubectl-svcnet")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build svcnet: %w", err)
		}
	}
	if dir == "" {
		temp, err := os.MkdirTemp("", "svcnet-fleet")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		dir = temp
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f := scale.NewFleet(services, endpoints)
	var size int64
	for n := range nodes {
		bytes, err := write(dir, f, n)
		if err != nil {
			return err
		}
		size += bytes
	}
	fmt.Printf("%d nodes, %d Services with %d endpoints each, %.1f MB a bundle\n", nodes, services, endpoints, float64(size)/float64(nodes)/1e6)

	self, err := os.Executable()
	if err != nil {
		return err
	}
	parsed, err := ran(io.Discard, self, "-parse", "-dir", dir, "-compare", strconv.Itoa(compare))
	if err != nil {
		return err
	}
	doc, err := os.CreateTemp("", "svcnet-fleet-*.json")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(doc.Name()) }()
	// What is not in the bundles makes the audit exit with 4, which is no failure here; the document says what it found.
	audited, err := ran(doc, program, "audit", "-o", "json", "--fail-on", "never", "-f", dir)
	if audited == nil {
		return err
	}
	kinds, err := kindsIn(doc.Name())
	if err != nil {
		return err
	}
	each := func(p *os.ProcessState, nodes int) time.Duration {
		return (p.UserTime() + p.SystemTime()) / time.Duration(nodes)
	}
	fmt.Printf("decompress and parse: %v of CPU a node\n", each(parsed, compare).Round(time.Millisecond))
	fmt.Printf("audit:                %v of CPU a node, %.2f ×, peak memory %d MiB\n",
		each(audited, nodes).Round(time.Millisecond), float64(each(audited, nodes))/float64(each(parsed, compare)), peak(audited)>>20)
	fmt.Printf("kinds of nodes:       %d (1 is right: all do the same)\n", kinds)
	return nil
}

// write makes the bundle of one node, unless it is there.
func write(dir string, f *scale.Fleet, n int) (int64, error) {
	name := filepath.Join(dir, fmt.Sprintf("svcnet-node-%d.tar.gz", n+1))
	if info, err := os.Stat(name); err == nil {
		return info.Size(), nil
	}
	node, files := f.Node(n)
	raw, err := os.MkdirTemp("", "svcnet-fleet")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(raw) }()
	if err := scale.Write(raw, files); err != nil {
		return 0, err
	}
	s, err := snapshot.Load([]string{raw}, nil)
	if err != nil {
		return 0, err
	}
	s.Node, s.Tool, s.Captured = node, "simulated", time.Date(2026, 1, 5, 10, 1, n%60, 0, time.UTC).Format(time.RFC3339)
	out, err := os.Create(name + ".part")
	if err != nil {
		return 0, err
	}
	if err := s.WriteBundle(out); err != nil {
		return 0, err
	}
	info, err := out.Stat()
	if err != nil {
		return 0, err
	}
	if err := out.Close(); err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(name+".part", name)
}

// ran starts a program and waits for its end.
func ran(out io.Writer, program string, args ...string) (*os.ProcessState, error) {
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = out, os.Stderr
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w", program, err)
	}
	return c.ProcessState, err
}

// parse decompresses and parses bundles below dir, and drops each before the next.
func parse(dir string, most int) error {
	found, _ := snapshot.Bundles([]string{dir})
	for _, b := range found[:min(most, len(found))] {
		s, err := snapshot.Load([]string{b.Path}, nil)
		if err != nil {
			return err
		}
		var set objects.Set
		for _, e := range s.Evidence {
			switch e.Format {
			case snapshot.IPTablesSave:
				if _, err := netfilter.ParseSave(string(e.Data), e.File, netfilter.Hint{}); err != nil {
					return err
				}
			case snapshot.Objects:
				objects.Decode(&set, e.Data, e.File)
			}
		}
		set.Sort()
	}
	return nil
}

// kindsIn is how many kinds of nodes the document has.
func kindsIn(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var l report.Reports
	if err := json.Unmarshal(text, &l); err != nil {
		return 0, fmt.Errorf("audit: no document: %w", err)
	}
	return len(l.Kinds), nil
}
