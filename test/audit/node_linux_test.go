package audit

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/report"
	"github.com/svcnet/svcnet/test/lab"
)

// insideFlag tells the test binary that it runs in a guest, where everything takes its time (TestIPVS).
const insideFlag = "SVCNET_AUDIT_IN_GUEST"

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// a reader reads one node as svcnet does there, from within this process.
type reader struct {
	node *lab.Node
	api  *collectors.API
	// silent leaves kube-proxy's HTTP endpoints alone: one that was stopped would be waited for.
	silent bool
}

func newReader(l *lab.Lab, n *lab.Node) (*reader, error) {
	c, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	c.Dial = dialler(l)
	return &reader{node: n, api: &collectors.API{Config: c, From: "the lab's kubeconfig"}}, nil
}

// dialler makes connections to the API server, whoever asks: client-go does so from threads of its own, which are in
// no namespace of the lab.
func dialler(l *lab.Lab) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var conn net.Conn
		err := l.ControlPlane.Netns().Do(func() (err error) {
			conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// read takes a snapshot.
func (r *reader) read(ctx context.Context) (*snapshot.Snapshot, error) {
	var s *snapshot.Snapshot
	err := r.node.Netns().Do(func() (err error) {
		s, err = collectors.Collect(ctx, collectors.Options{Node: r.node.Name, API: r.api, Silent: r.silent})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", r.node, err)
	}
	return s, nil
}

// audit reads the node and audits it.
func (r *reader) audit(ctx context.Context) (*report.Report, *snapshot.Snapshot, error) {
	s, err := r.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	a, err := explain.Audit(s, explain.AuditOptions{})
	return a, s, err
}

// keep writes what was read into the folder SVCNET_AUDIT_KEEP, for a look with `svcnet audit --snapshot`.
func keep(t *testing.T, name string, s *snapshot.Snapshot) {
	t.Helper()
	folder := os.Getenv("SVCNET_AUDIT_KEEP")
	if folder == "" {
		return
	}
	var bundle bytes.Buffer
	err := s.WriteBundle(&bundle)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".tar.gz"), bundle.Bytes(), 0o644)
	}
	if err != nil {
		t.Log(err)
	}
}
