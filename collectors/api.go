package collectors

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// API is where objects are read: the API server, with somebody's credentials.
type API struct {
	Config *rest.Config
	// From says in a few words whose credentials these are, for messages: "kubeconfig", "kube-proxy's kubeconfig".
	From string
	// Timeout bounds one request; 0: DefaultAPITimeout.
	Timeout time.Duration
}

// DefaultAPITimeout is patient with a busy API server and short enough for somebody who waits.
const DefaultAPITimeout = 15 * time.Second

// kind is one resource that is read whole, a page at a time.
type kind struct {
	file     string // name of the evidence
	path     string
	resource string // as people and RBAC call it
	list     string // kind of the list
	version  string
	// ofNode reads only the objects of one node; without its name there are none to ask for.
	ofNode bool
}

// kinds are what the questions about Services need, in the order in which they are read: nodes first, because
// their names are needed for pods; Services after endpoint slices, so that a Service made in between lacks no
// slice that was there before it.
var kinds = []kind{
	{file: "nodes.json", path: "/api/v1/nodes", resource: "nodes", list: "NodeList", version: "v1"},
	{file: "endpointslices.json", path: "/apis/discovery.k8s.io/v1/endpointslices", resource: "endpointslices.discovery.k8s.io", list: "EndpointSliceList", version: "discovery.k8s.io/v1"},
	{file: "services.json", path: "/api/v1/services", resource: "services", list: "ServiceList", version: "v1"},
	{file: "pods.json", path: "/api/v1/pods", resource: "pods", list: "PodList", version: "v1", ofNode: true},
}

// apiFile names the evidence that says why the API could not be read at all.
const apiFile = "api"

// errNodeUnknown is why pods are not read where nobody knows whose.
var errNodeUnknown = errors.New("read pods: which Node this machine is, is not known (say it with --node NAME)")

// pageSize is what kubectl asks for at a time.
const pageSize = 500

// ReadObjects reads what the API knows of the whole cluster: nodes, endpoint slices, Services, and pods of Services without
// ready endpoints. Those of one node are PodsOf. What could not be read is evidence with a status.
func ReadObjects(ctx context.Context, a *API) []snapshot.Evidence { return readAPI(ctx, a, nil) }

// PodsOf reads the pods of one node.
func PodsOf(ctx context.Context, a *API, node string) snapshot.Evidence {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.ofNode })]
	c, err := a.client()
	if err == nil {
		var data []byte
		if data, err = c.list(ctx, k, selection{fields: "spec.nodeName=" + node}); err == nil {
			return evidence(k.file, snapshot.Objects, data)
		}
	}
	return a.missed(k.file, k.resource, err)
}

// readAPI reads all kinds. nodeOf is asked for the node's name once the nodes are read; empty: not known. Without it
// nothing is read of a single node.
func readAPI(ctx context.Context, a *API, nodeOf func(nodes []byte) string) []snapshot.Evidence {
	c, err := a.client()
	if err != nil {
		return []snapshot.Evidence{missed(apiFile, snapshot.Objects, snapshot.Failed, fmt.Errorf("read the API: %w (check the kubeconfig, or give objects with -f)", err))}
	}
	var (
		out   []snapshot.Evidence
		nodes []byte
	)
	for i, k := range kinds {
		only := selection{}
		if k.ofNode && nodeOf == nil {
			continue
		}
		if k.ofNode {
			name := nodeOf(nodes)
			if name == "" {
				out = append(out, missed(k.file, snapshot.Objects, snapshot.NotCollected, errNodeUnknown))
				continue
			}
			only.fields = "spec.nodeName=" + name
		}
		data, err := c.list(ctx, k, only)
		switch {
		case err == nil:
			out = append(out, evidence(k.file, snapshot.Objects, data))
			if k.file == "nodes.json" {
				nodes = data
			}
		case isGone(err) && len(out) == 0:
			// Nobody answers: the other kinds would only wait for the same.
			return append(out, a.missed(apiFile, "the API", err))
		case isGone(err):
			// Some kinds were read before: the rest is missing by name, so that it shows what the answer lacks.
			for _, rest := range kinds[i:] {
				if rest.ofNode && nodeOf == nil {
					continue
				}
				out = append(out, a.missed(rest.file, rest.resource, err))
			}
			return out
		default:
			out = append(out, a.missed(k.file, k.resource, err))
		}
	}
	return append(out, a.readServicePods(ctx, c, out)...)
}

// client is a connection to one API server.
type client struct {
	rest    *rest.RESTClient
	timeout time.Duration
}

func (a *API) client() (*client, error) {
	c := rest.CopyConfig(a.Config)
	c.Timeout = cmp.Or(a.Timeout, DefaultAPITimeout)
	c.UserAgent = "svcnet"
	// Warnings of the server are for those who write.
	c.WarningHandler = rest.NoWarnings{}
	// A page is a request: the default of 5 a second would make 10,000 Services wait.
	c.QPS, c.Burst = 50, 100
	r, err := rest.UnversionedRESTClientFor(withCodec(c))
	if err != nil {
		return nil, err
	}
	return &client{rest: r, timeout: c.Timeout}, nil
}

// list reads every page of a kind into one list, an object a line, so that evidence can name a line. Pages are
// of one moment: the server serves them from one revision, and where that is gone the list is read again.
func (c *client) list(ctx context.Context, k kind, only selection) ([]byte, error) {
	data, err := c.pages(ctx, k, only, pageSize)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return c.pages(ctx, k, only, 0)
	}
	return data, err
}

// selection limits a list to objects with these fields and labels; empty: all.
type selection struct{ fields, labels string }

func (c *client) pages(ctx context.Context, k kind, only selection, limit int) ([]byte, error) {
	var items []json.RawMessage
	for next := ""; ; {
		r := c.rest.Get().AbsPath(k.path).SetHeader("Accept", "application/json")
		if limit > 0 {
			r = r.Param("limit", fmt.Sprint(limit))
		}
		if only.fields != "" {
			r = r.Param("fieldSelector", only.fields)
		}
		if only.labels != "" {
			r = r.Param("labelSelector", only.labels)
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		body, err := c.ask(ctx, r)
		if err != nil {
			return nil, err
		}
		var page struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("the answer is no list: %w", err)
		}
		// Something else without items is no empty list.
		if page.Kind != k.list {
			return nil, fmt.Errorf("the answer is no %s: its kind is %q", k.list, page.Kind)
		}
		items = append(items, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return listOf(k, items), nil
		}
	}
}

// retries is how often the client asks again where a server is busy or closes the connection. It waits a second, or
// as long as the server says.
const retries = 3

// ask makes one request; its timeout is that of all tries together.
func (c *client) ask(ctx context.Context, r *rest.Request) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	body, err := r.MaxRetries(retries).DoRaw(within)
	switch {
	case err == nil:
		return body, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		return nil, within.Err()
	}
	// The client does not look into the body of a refusal, where the server says who may not do what.
	var said metav1.Status
	if json.Unmarshal(body, &said) == nil && said.Kind == "Status" && said.Code != 0 {
		return nil, apierrors.FromObject(&said)
	}
	return nil, err
}

// listOf writes a list with an object a line. Revisions are left out: they say nothing of the node, and the
// same objects give the same bytes.
func listOf(k kind, items []json.RawMessage) []byte {
	var b, object bytes.Buffer
	fmt.Fprintf(&b, `{"apiVersion":%q,"kind":%q,"items":[`, k.version, k.list)
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		// The API server writes no spaces, but what stands between may.
		object.Reset()
		if json.Compact(&object, item) != nil {
			object.Write(item) // not reached: it was decoded
		}
		b.Write(withoutManagedFields(object.Bytes()))
	}
	b.WriteString("\n]}\n")
	return b.Bytes()
}

// isGone tells that no other request would fare better: no server answers, it does not know who asks, or nobody
// waits for answers any more.
func isGone(err error) bool {
	var (
		unreachable *url.Error
		slow        net.Error
	)
	return errors.As(err, &unreachable) || errors.As(err, &slow) && slow.Timeout() || errors.Is(err, context.Canceled) ||
		apierrors.IsUnauthorized(err)
}

// missed says why objects could not be read, in one line.
func (a *API) missed(file, what string, err error) snapshot.Evidence {
	from := ""
	if a.From != "" {
		from = " with " + a.From
	}
	var (
		unreachable *url.Error
		slow        net.Error
		stranger    *tls.CertificateVerificationError
		refused     apierrors.APIStatus
		why         string
		status      = snapshot.Failed
		next        = "check that the API server runs, or give objects with -f"
	)
	switch {
	case errors.Is(err, context.Canceled):
		return missed(file, snapshot.Objects, snapshot.NotCollected, fmt.Errorf("read %s: interrupted", what))
	case apierrors.IsUnauthorized(err):
		status, why, next = snapshot.Denied, "the server does not accept the credentials, which may have expired", "log in again, or name another --kubeconfig or --context"
	case errors.As(err, &refused) && apierrors.IsUnexpectedServerError(err):
		// No API server said that: something before it, with a page for people.
		why = hostOf(a.Config) + " answers " + pageOf(refused.Status())
	case apierrors.IsForbidden(err):
		status, why, next = snapshot.Denied, err.Error(), "ask for the right to list them, or give them with -f"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		why = fmt.Sprintf("no answer from %s within %v", hostOf(a.Config), cmp.Or(a.Timeout, DefaultAPITimeout))
	case errors.Is(err, io.EOF):
		why = hostOf(a.Config) + " closes the connection and does not answer"
	case errors.As(err, &stranger):
		why, next = stranger.Err.Error(), "check the server and the certificate-authority of the kubeconfig, or give objects with -f"
	case errors.As(err, &unreachable):
		why = unreachable.Err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		why = "the answer of " + hostOf(a.Config) + " broke off"
	default:
		why = err.Error()
	}
	return missed(file, snapshot.Objects, status, fmt.Errorf("read %s%s: %s (%s)", what, from, oneLine(why), next))
}

// pageOf is a refusal that is no object of the API, in a few words: what it says is shown where that is short.
func pageOf(s metav1.Status) string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, http.StatusText(int(s.Code))))
	if s.Details == nil {
		return text
	}
	const longest = 200
	for _, c := range s.Details.Causes {
		if said := oneLine(c.Message); said != "unknown" && len(said) <= longest && !strings.ContainsAny(said, "<>") {
			text += fmt.Sprintf(" and says %q", said)
		}
	}
	return text
}

func hostOf(c *rest.Config) string {
	if c.Host == "" {
		return "the API server"
	}
	return c.Host
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
