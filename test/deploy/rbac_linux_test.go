package deploy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/svcnet/svcnet/collectors"
	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/lab/labtest"
)

// TestRole watches a real API server with a token of the daemonset's service account: with the role of the manifest each
// kind of objects is read, and without any one of its rights the kind that it is for is denied, and no other.
func TestRole(t *testing.T) {
	l := labtest.Bring(t, lab.Options{Name: fmt.Sprintf("r%d", os.Getpid()), Nodes: 1, NoProxy: true})
	ctx := t.Context()
	d := readDaemonset(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.Apply(ctx, d.namespace, d.account, d.binding, d.role))
	// The lab has no controller that would say what a token is for: the API server makes one on request.
	body, err := l.Request(ctx, http.MethodPost, "/api/v1/namespaces/"+d.namespace.Name+"/serviceaccounts/"+d.account.Name+"/token", "application/json",
		[]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600}}`))
	must(err)
	var token struct{ Status struct{ Token string } }
	must(json.Unmarshal(body, &token))
	if token.Status.Token == "" {
		t.Fatalf("no token in %s", body)
	}
	kubeconfig, err := os.ReadFile(l.Kubeconfig("admin"))
	must(err)
	authority := between(string(kubeconfig), "certificate-authority-data: ", "}")
	certificate, err := base64.StdEncoding.DecodeString(authority)
	must(err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	must(os.WriteFile(file, certificate, 0o600))
	config := &rest.Config{
		Host: strings.Trim(between(string(kubeconfig), "server: ", ","), `"`), BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: file}, Dial: dialFrom(l.Node("n1")),
	}

	// read is the status of each kind, by the name of its evidence.
	read := func() map[string]snapshot.Status {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		o, err := collectors.Follow(ctx, &collectors.API{Config: config, From: "the service account"}, "n1", func(collectors.Change) {}, func(error) {})
		must(err)
		must(o.Known(ctx))
		out := make(map[string]snapshot.Status)
		for _, e := range o.Evidence() {
			out[e.File] = e.Status
		}
		return out
	}
	files := map[string]string{"nodes": "nodes.json", "pods": "pods.json", "services": "services.json", "endpointslices": "endpointslices.json"}
	// Roles take effect a moment after they were written.
	expect := func(what string, denied string) {
		t.Helper()
		var got map[string]snapshot.Status
		for range 50 {
			got = read()
			fits := true
			for _, f := range files {
				want := snapshot.OK
				if f == denied {
					want = snapshot.Denied
				}
				fits = fits && got[f] == want
			}
			if fits {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s: %v, want %q denied", what, got, denied)
	}
	expect("the whole role", "")
	seen := 0
	for i, rule := range d.role.Rules {
		for _, resource := range rule.Resources {
			// Without list nothing is read. Without watch nothing is told later, which is no status of what was listed.
			role := d.role.DeepCopy()
			role.Rules[i].Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return r == resource })
			if len(role.Rules[i].Resources) == 0 {
				role.Rules = slices.Delete(role.Rules, i, i+1)
			}
			must(l.Replace(ctx, *role))
			expect("without "+resource, files[resource])
			seen++
		}
	}
	if seen != len(files) {
		t.Errorf("the role has %d resources, and %d are read", seen, len(files))
	}
	must(l.Replace(ctx, d.role))
	expect("the whole role again", "")
	// It may not do anything else.
	for _, path := range []string{"/api/v1/secrets", "/api/v1/configmaps", "/api/v1/namespaces/kube-system/secrets", "/apis/apps/v1/daemonsets"} {
		if may(t, config, path) {
			t.Errorf("the account may read %s", path)
		}
	}
}

func may(t *testing.T, config *rest.Config, path string) bool {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode != http.StatusForbidden
}

func between(s, before, after string) string {
	_, s, _ = strings.Cut(s, before)
	s, _, _ = strings.Cut(s, after)
	return s
}

// dialFrom connects from inside a node.
func dialFrom(n *lab.Node) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		failed := n.Netns().Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return nil
		})
		return c, errors.Join(err, failed)
	}
}
