package collectors

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// object is an object as the API server writes it, with everything that could go wrong on the way: managedFields in
// several places, brackets and quotes in strings, large numbers, escapes.
func object(kind string, n int) string {
	name := fmt.Sprintf("o%04d", n)
	managed := `"managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{"k:{\"port\":80}":{".":{}}}}},{"manager":"]}\"["}]`
	switch n % 4 {
	case 0:
		return fmt.Sprintf(`{"metadata":{"name":%q,%s,"uid":"u"},"spec":{"managedFields":["kept"],"n":9007199254740993}}`, name, managed)
	case 1:
		return fmt.Sprintf(`{"metadata":{%s,"name":%q,"annotations":{"managedFields":"kept","t":"\u003ca\u003e \"]}"}}}`, managed, name)
	case 2:
		return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"a":"ä\\"},%s},"status":{}}`, name, managed)
	}
	return fmt.Sprintf(`{"kind":%q,"metadata":{"name":%q},"data":1.50}`, kind, name)
}

// unmanaged is an object decoded, without metadata.managedFields.
func unmanaged(t *testing.T, object []byte) map[string]any {
	t.Helper()
	var o map[string]any
	in := json.NewDecoder(bytes.NewReader(object))
	in.UseNumber()
	if err := in.Decode(&o); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	if meta, ok := o["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	return o
}

// kindAt is the kind that is read at a path.
func kindAt(path string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.path == path })]
}

// page is a list as the API server writes it.
func page(k kind, next string, items ...string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`+"\n", k.list, k.version, next, strings.Join(items, ","))
}

// well is the answer of an API server with a single object of each kind.
func well(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, page(kindAt(r.URL.Path), "", object("", 3)))
}

// serve starts an API server.
func serve(t *testing.T, handler http.HandlerFunc) *API {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return &API{Config: &rest.Config{Host: s.URL}, From: "the kubeconfig", Timeout: 20 * time.Second}
}

func ofNode1([]byte) string { return "n1" }

// TestPages reads lists of several pages and holds every object against the one that was sent.
func TestPages(t *testing.T) {
	const total = 2*pageSize + 203
	var asked []string
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		q := r.URL.Query()
		asked = append(asked, r.URL.Path+"?"+q.Encode())
		from, _ := strconv.Atoi(q.Get("continue"))
		limit, _ := strconv.Atoi(q.Get("limit"))
		k := kindAt(r.URL.Path)
		var items []string
		for n := from; n < min(from+limit, total); n++ {
			items = append(items, object(k.list, n))
		}
		next := ""
		if from+limit < total {
			next = strconv.Itoa(from + limit)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, page(k, next, items...))
	})
	var nodes []byte
	read := readAPI(t.Context(), a, func(list []byte) string { nodes = list; return "node-1" })
	if len(read) != len(kinds) {
		t.Fatalf("%d pieces of evidence, want %d", len(read), len(kinds))
	}
	var want []string
	for i, k := range kinds {
		selector := ""
		if k.ofNode {
			selector = "fieldSelector=spec.nodeName%3Dnode-1&"
		}
		for _, from := range []string{"", "continue=500&", "continue=1000&"} {
			want = append(want, k.path+"?"+from+selector+"limit=500&timeout=20s")
		}
		e := read[i]
		if e.File != k.file || e.Format != snapshot.Objects || e.Status != snapshot.OK || e.Error != "" {
			t.Fatalf("%+v", e)
		}
		if k.file == "nodes.json" && !bytes.Equal(nodes, e.Data) {
			t.Error("the node's name was not looked for among the nodes")
		}
		// The first line is the list's, the last one closes it; between them stands an object a line.
		lines := bytes.Split(bytes.TrimSuffix(e.Data, []byte("\n")), []byte("\n"))
		if len(lines) != total+2 || !json.Valid(e.Data) {
			t.Fatalf("%s: %d lines, valid: %v", k.file, len(lines), json.Valid(e.Data))
		}
		for n, line := range lines[1 : total+1] {
			sent := object(k.list, n)
			line = bytes.TrimSuffix(line, []byte(","))
			if n%4 == 3 && string(line) != sent {
				t.Fatalf("%s: object without managedFields is %s, want %s", k.file, line, sent)
			}
			if bytes.Contains(line, []byte("kubectl")) {
				t.Fatalf("%s: managedFields are there: %s", k.file, line)
			}
			if diff := cmp.Diff(unmanaged(t, []byte(sent)), unmanaged(t, line)); diff != "" {
				t.Fatalf("%s, object %d:\n%s", k.file, n, diff)
			}
		}
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests:\n%s", diff)
	}
}

// TestEmptyLists: no objects are an answer.
func TestEmptyLists(t *testing.T) {
	for _, e := range readAPI(t.Context(), serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, page(kindAt(r.URL.Path), ""))
	}), ofNode1) {
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(e.Data, &list); err != nil || e.Status != snapshot.OK || list.Items == nil || len(list.Items) > 0 {
			t.Errorf("%s is %s, %v: %s", e.File, e.Status, err, e.Data)
		}
	}
}

// TestSpaces: something between wrote the answer anew, with lines and spaces.
func TestSpaces(t *testing.T) {
	for _, e := range readAPI(t.Context(), serve(t, func(w http.ResponseWriter, r *http.Request) {
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, []byte(page(kindAt(r.URL.Path), "", object("", 0), object("", 1), object("", 2))), "", "  "); err != nil {
			t.Error(err)
		}
		_, _ = spaced.WriteTo(w)
	}), ofNode1) {
		if lines := bytes.Count(e.Data, []byte("\n")); lines != 5 || bytes.Contains(e.Data, []byte("kubectl")) || !json.Valid(e.Data) {
			t.Errorf("%s has %d lines: %s", e.File, lines, e.Data)
		}
	}
}

// refusal is an error of the API server.
func refusal(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

// TestExpiredPages: the revision of the first page is gone before the second one is read. The list is read again,
// at one go.
func TestExpiredPages(t *testing.T) {
	for name, expire := range map[string]func(w http.ResponseWriter){
		"as an object": func(w http.ResponseWriter) {
			refusal(w, http.StatusGone, "Expired", "The provided continue parameter is too old")
		},
		"as a code alone": func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) },
	} {
		t.Run(name, func(t *testing.T) {
			again := 0
			a := serve(t, func(w http.ResponseWriter, r *http.Request) {
				k := kindAt(r.URL.Path)
				switch q := r.URL.Query(); {
				case q.Get("continue") != "":
					expire(w)
				case q.Get("limit") != "":
					fmt.Fprint(w, page(k, "more", object("", 0), object("", 1)))
				default:
					again++
					fmt.Fprint(w, page(k, "", object("", 5), object("", 6), object("", 7)))
				}
			})
			for _, e := range readAPI(t.Context(), a, ofNode1) {
				var list struct {
					Items []struct{ Metadata struct{ Name string } }
				}
				if err := json.Unmarshal(e.Data, &list); err != nil {
					t.Fatalf("%s is %s: %s", e.File, e.Status, e.Error)
				}
				var names []string
				for _, it := range list.Items {
					names = append(names, it.Metadata.Name)
				}
				if diff := cmp.Diff([]string{"o0005", "o0006", "o0007"}, names); diff != "" {
					t.Errorf("%s:\n%s", e.File, diff)
				}
			}
			if again != len(kinds) {
				t.Errorf("%d lists were read at one go, want %d", again, len(kinds))
			}
		})
	}
	t.Run("always", func(t *testing.T) {
		for _, e := range readAPI(t.Context(), serve(t, func(w http.ResponseWriter, _ *http.Request) {
			refusal(w, http.StatusGone, "Expired", "too old")
		}), ofNode1) {
			if e.Status != snapshot.Failed || !strings.Contains(e.Error, "too old") {
				t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
			}
		}
	})
}

// TestUnknownNode: whose pods to read is not known.
func TestUnknownNode(t *testing.T) {
	read := readAPI(t.Context(), serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			t.Error("pods of all nodes were asked for")
		}
		well(w, r)
	}), func([]byte) string { return "" })
	for _, e := range read {
		if e.File == "pods.json" && (e.Status != snapshot.NotCollected || !strings.Contains(e.Error, "--node NAME")) || e.File != "pods.json" && e.Status != snapshot.OK {
			t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
		}
	}
}

// only spoils the answers at one path.
func only(path string, spoil http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			spoil(w, r)
			return
		}
		well(w, r)
	}
}

func text(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// trouble is what becomes of a source: its status and what is said of it.
type trouble struct {
	status snapshot.Status
	says   string
}

// TestRefusals meets API servers that do not give what is asked for, and others that are none. Sources that a case
// does not name are read.
func TestRefusals(t *testing.T) {
	const html = "<html><head><title>Sign in</title></head>\n<body>" + "<p>Please sign in.</p>\n" + "</body></html>\n"
	page502 := text(http.StatusBadGateway, "text/html", "<html>\n<h1>502 Bad Gateway</h1>\n</html>\n")
	deny := func(w http.ResponseWriter, r *http.Request) {
		refusal(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("%s is forbidden: User \"viewer\" cannot list resource", kindAt(r.URL.Path).resource))
	}
	// each is the same trouble for all kinds.
	each := func(status snapshot.Status, says string) map[string]trouble {
		out := map[string]trouble{}
		for _, k := range kinds {
			out[k.file] = trouble{status, says}
		}
		return out
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   map[string]trouble
	}{
		{"401", func(w http.ResponseWriter, _ *http.Request) { refusal(w, 401, "Unauthorized", "Unauthorized") },
			map[string]trouble{"api": {snapshot.Denied, "read the API with the kubeconfig: the server does not accept the credentials, which may have expired (log in again"}}},
		{"401 of a proxy", text(401, "text/html", html), map[string]trouble{"api": {snapshot.Denied, "does not accept the credentials"}}},
		{"401 in the middle", only("/api/v1/services", func(w http.ResponseWriter, _ *http.Request) { refusal(w, 401, "Unauthorized", "Unauthorized") }),
			map[string]trouble{"services.json": {snapshot.Denied, "may have expired"}, "pods.json": {snapshot.Denied, "may have expired"}}},
		{"403", deny, map[string]trouble{
			"nodes.json":          {snapshot.Denied, `read nodes with the kubeconfig: nodes is forbidden: User "viewer" cannot list resource (ask for the right to list them`},
			"endpointslices.json": {snapshot.Denied, `endpointslices.discovery.k8s.io is forbidden: User "viewer"`},
			"services.json":       {snapshot.Denied, `services is forbidden`}, "pods.json": {snapshot.Denied, `pods is forbidden`},
		}},
		{"403 for pods", only("/api/v1/pods", deny), map[string]trouble{"pods.json": {snapshot.Denied, "pods is forbidden"}}},
		{"403 of a proxy", text(403, "text/html", html), each(snapshot.Failed, "answers 403 Forbidden (check that the API server runs")},
		{"404", text(404, "text/plain", "404 page not found\n"), each(snapshot.Failed, `answers 404 Not Found and says "404 page not found" (check`)},
		{"500", func(w http.ResponseWriter, _ *http.Request) {
			refusal(w, 500, "InternalError", "etcdserver: request timed out\nand more")
		}, each(snapshot.Failed, "etcdserver: request timed out and more (check")},
		{"500 as text", text(500, "text/plain", "boom\n"), each(snapshot.Failed, `answers 500 Internal Server Error and says "boom" (check`)},
		{"500 as a long text", text(500, "text/plain", strings.Repeat("boom ", 1000)), each(snapshot.Failed, `answers 500 Internal Server Error (check`)},
		{"502 of a proxy", page502, each(snapshot.Failed, "answers 502 Bad Gateway (check")},
		{"503 for Services", only("/api/v1/services", page502), map[string]trouble{"services.json": {snapshot.Failed, "read services with the kubeconfig: "}}},
		{"299", text(299, "application/json", "{}"), each(snapshot.Failed, "299")},
		{"garbage", text(200, "application/json", "\x00\x01\xff\n\x1b[31m"), each(snapshot.Failed, "the answer is no list: ")},
		{"a page", text(200, "text/html", html), each(snapshot.Failed, "the answer is no list: ")},
		{"a page behind a redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/login" {
				http.Redirect(w, r, "/login", http.StatusFound)
				return
			}
			text(200, "text/html", html)(w, r)
		}, each(snapshot.Failed, "the answer is no list: ")},
		{"redirects without end", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
			map[string]trouble{"api": {snapshot.Failed, "stopped after 10 redirects"}}},
		{"nothing", text(200, "application/json", ""), each(snapshot.Failed, "the answer is no list: ")},
		{"null", text(200, "application/json", "null"), each(snapshot.Failed, `its kind is ""`)},
		{"an empty object", text(200, "application/json", "{}"), each(snapshot.Failed, `its kind is ""`)},
		{"another kind", text(200, "application/json", `{"kind":"APIResourceList","resources":[]}`), each(snapshot.Failed, `its kind is "APIResourceList"`)},
		{"an object for items", text(200, "application/json", `{"kind":"NodeList","items":{}}`), each(snapshot.Failed, "the answer is no list: ")},
		{"cut JSON", only("/api/v1/services", text(200, "application/json", `{"kind":"ServiceList","items":[{"metadata":{"na`)),
			map[string]trouble{"services.json": {snapshot.Failed, "the answer is no list: unexpected end of JSON input (check"}}},
		{"cut body", only("/api/v1/services", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			_, _ = io.WriteString(w, `{"kind":"ServiceList","items":[`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), map[string]trouble{"services.json": {snapshot.Failed, "broke off (check that the API server runs"}}},
		{"cut chunks", only("/apis/discovery.k8s.io/v1/endpointslices", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"EndpointSliceList","items":[`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), map[string]trouble{"endpointslices.json": {snapshot.Failed, "broke off (check"}}},
		{"cut second page", only("/api/v1/services", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("continue") == "" {
				fmt.Fprint(w, page(kindAt(r.URL.Path), "more", object("", 0)))
				return
			}
			w.Header().Set("Content-Length", "5000")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), map[string]trouble{"services.json": {snapshot.Failed, "broke off (check"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := serve(t, c.answer)
			a.Timeout = 3 * time.Second
			meets(t, a, c.want)
		})
	}
}

// meets reads an API and checks what becomes of each source.
func meets(t *testing.T, a *API, want map[string]trouble) {
	t.Helper()
	got := map[string]bool{}
	for _, e := range readAPI(t.Context(), a, ofNode1) {
		got[e.File] = true
		w, expected := want[e.File]
		if !expected && (e.Status != snapshot.OK || e.Error != "") {
			t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
		}
		if !expected {
			continue
		}
		if e.Status != w.status || !strings.Contains(e.Error, w.says) || len(e.Data) > 0 {
			t.Errorf("%s is %s: %q, want %s with %q", e.File, e.Status, e.Error, w.status, w.says)
		}
		if strings.ContainsAny(e.Error, "\n\r\t\x1b") || strings.Contains(e.Error, "<html") || len(e.Error) > 400 || !strings.HasSuffix(e.Error, ")") {
			t.Errorf("%s: not one line for people: %q", e.File, e.Error)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(want)) {
		if !got[file] {
			t.Errorf("nothing says what became of %s", file)
		}
	}
	if _, all := want[apiFile]; !all && len(got) != len(kinds) {
		t.Errorf("only %v", slices.Sorted(maps.Keys(got)))
	}
}

// TestSlow: whatever a server does with the time, a request ends in time, and those that would only wait as long
// are not made.
func TestSlow(t *testing.T) {
	const patience = 300 * time.Millisecond
	late := "within 300ms (check that the API server runs"
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   map[string]trouble
	}{
		{"never answers", hang, map[string]trouble{"api": {snapshot.Failed, late}}},
		{"stops after the nodes", only("/apis/discovery.k8s.io/v1/endpointslices", hang), map[string]trouble{
			"endpointslices.json": {snapshot.Failed, late}, "services.json": {snapshot.Failed, late}, "pods.json": {snapshot.Failed, late}}},
		{"stops at the pods", only("/api/v1/pods", hang), map[string]trouble{"pods.json": {snapshot.Failed, late}}},
		{"stops in a list", only("/api/v1/services", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"ServiceList","items":[`)
			_ = http.NewResponseController(w).Flush()
			hang(w, r)
		}), map[string]trouble{"services.json": {snapshot.Failed, late}, "pods.json": {snapshot.Failed, late}}},
		{"asks to come again later", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			refusal(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests")
		}, map[string]trouble{"api": {snapshot.Failed, late}}},
		{"closes every connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			map[string]trouble{"api": {snapshot.Failed, late}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, c.answer)
			a.Timeout = patience
			begun := time.Now()
			meets(t, a, c.want)
			if took := time.Since(begun); took > 10*patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestBusy: a server that is busy for a moment is asked again.
func TestBusy(t *testing.T) {
	var tries int
	meets(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries < 3 {
			w.Header().Set("Retry-After", "0")
			refusal(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests")
			return
		}
		well(w, r)
	}), nil)
}

// TestNobodyThere: no server, or one that is not trusted.
func TestNobodyThere(t *testing.T) {
	t.Parallel() // a server that closes connections is asked again, a second later each time
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	tlsServer := httptest.NewUnstartedServer(http.HandlerFunc(well))
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it are what is tested
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	plain := httptest.NewServer(http.HandlerFunc(well))
	t.Cleanup(plain.Close)
	rude := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(rude.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tlsServer.Certificate().Raw})
	other := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		config rest.Config
		says   string // empty: it is read
	}{
		{"trusted", rest.Config{Host: tlsServer.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, ""},
		{"refused", rest.Config{Host: "http://" + closed.Addr().String()}, "connection refused (check that the API server runs"},
		{"not trusted", rest.Config{Host: tlsServer.URL}, "certificate signed by unknown authority (check the server and the certificate-authority"},
		{"another name", rest.Config{Host: tlsServer.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "api.test"}}, "not api.test (check the server and the certificate-authority"},
		{"no TLS", rest.Config{Host: strings.Replace(plain.URL, "http:", "https:", 1)}, "server gave HTTP response to HTTPS client"},
		{"closes every connection", rest.Config{Host: rude.URL}, "closes the connection and does not answer (check that the API server runs"},
		{"no name", rest.Config{Host: "https://svcnet.invalid"}, "svcnet.invalid"},
		{"no address", rest.Config{Host: "://"}, "check the kubeconfig"},
		{"no such certificate", rest.Config{Host: tlsServer.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: "/nope"}}, "/nope: no such file or directory (check the kubeconfig"},
		{"no such token", rest.Config{Host: plain.URL, BearerTokenFile: "/nope"}, "/nope"},
		{"an empty token", rest.Config{Host: plain.URL, BearerTokenFile: other}, "token"},
		{"two ways to log in", rest.Config{Host: plain.URL, Username: "u", BearerToken: "t"}, "check the kubeconfig"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := map[string]trouble{"api": {snapshot.Failed, c.says}}
			if c.says == "" {
				want = nil
			}
			meets(t, &API{Config: &c.config, From: "the kubeconfig", Timeout: 10 * time.Second}, want)
		})
	}
}

// TestInterruptedAPI: somebody stops svcnet while it waits.
func TestInterruptedAPI(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/services" {
			cancel()
			hang(w, r)
		}
		well(w, r)
	})
	begun := time.Now()
	for _, e := range readAPI(ctx, a, ofNode1) {
		switch e.File {
		case "services.json", "pods.json":
			if e.Status != snapshot.NotCollected || !strings.HasSuffix(e.Error, ": interrupted") {
				t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
			}
		default:
			if e.Status != snapshot.OK {
				t.Errorf("%s is %s: %s", e.File, e.Status, e.Error)
			}
		}
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestWithoutManagedFields(t *testing.T) {
	for _, c := range []struct{ name, object, want string }{
		{"first", `{"metadata":{"managedFields":[{"a":1}],"name":"x"}}`, `{"metadata":{"name":"x"}}`},
		{"middle", `{"metadata":{"a":1,"managedFields":[],"name":"x"}}`, `{"metadata":{"a":1,"name":"x"}}`},
		{"last", `{"metadata":{"name":"x","managedFields":[[1],[2]]},"spec":{}}`, `{"metadata":{"name":"x"},"spec":{}}`},
		{"alone", `{"metadata":{"managedFields":[{}]}}`, `{"metadata":{}}`},
		{"brackets in strings", `{"metadata":{"managedFields":[{"k:{\"a\":\"]}\"}":"\\"}],"name":"]"}}`, `{"metadata":{"name":"]"}}`},
		{"metadata last", `{"spec":{"managedFields":[1]},"metadata":{"managedFields":[2]}}`, `{"spec":{"managedFields":[1]},"metadata":{}}`},
		{"of another field", `{"metadata":{"name":"x"},"spec":{"managedFields":[1]}}`, `{"metadata":{"name":"x"},"spec":{"managedFields":[1]}}`},
		{"deeper", `{"metadata":{"annotations":{"managedFields":[1]}}}`, `{"metadata":{"annotations":{"managedFields":[1]}}}`},
		{"of a template", `{"spec":{"template":{"metadata":{"managedFields":[1]}}}}`, `{"spec":{"template":{"metadata":{"managedFields":[1]}}}}`},
		{"as a string", `{"metadata":{"name":"\"managedFields\":[1]"}}`, `{"metadata":{"name":"\"managedFields\":[1]"}}`},
		{"no list", `{"metadata":{"managedFields":null,"name":"x"}}`, `{"metadata":{"managedFields":null,"name":"x"}}`},
		{"metadata as a value", `{"kind":"metadata","spec":{"managedFields":[1]}}`, `{"kind":"metadata","spec":{"managedFields":[1]}}`},
		{"no metadata", `{"a":1}`, `{"a":1}`},
		{"no object", `"metadata"`, `"metadata"`},
		{"nothing", ``, ``},
		{"cut in a string", `{"metadata":{"managedFields":["`, `{"metadata":{"managedFields":["`},
		{"cut in an escape", `{"metadata":{"managedFields":["\`, `{"metadata":{"managedFields":["\`},
		{"cut in the list", `{"metadata":{"managedFields":[`, `{"metadata":{"managedFields":[`},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.object
			if got := string(withoutManagedFields([]byte(c.object))); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if c.object != before {
				t.Errorf("it changed its argument into %s", c.object)
			}
		})
	}
}

// FuzzWithoutManagedFields: nothing makes it panic; an object without spaces, as the API server writes it, keeps all
// but metadata.managedFields.
func FuzzWithoutManagedFields(f *testing.F) {
	for n := range 4 {
		f.Add([]byte(object("Service", n)))
	}
	f.Add([]byte(`{"metadata":{"managedFields":[],"managedFields":[1]}}`))
	f.Add([]byte(`["metadata",{"managedFields":[1]}]`))
	f.Add([]byte(`{"metadata":{"managedFields":["\`))
	f.Fuzz(func(t *testing.T, data []byte) {
		argument := bytes.Clone(data)
		withoutManagedFields(argument)
		if !bytes.Equal(argument, data) {
			t.Fatalf("it changed its argument into %q", argument)
		}
		var compact bytes.Buffer
		if json.Compact(&compact, data) != nil {
			return
		}
		if got := withoutManagedFields(compact.Bytes()); !json.Valid(got) {
			t.Fatalf("%q became %q", compact.Bytes(), got)
		}
		// With every key once, and written plainly.
		var o map[string]any
		in := json.NewDecoder(bytes.NewReader(data))
		in.UseNumber()
		if in.Decode(&o) != nil || o == nil {
			return
		}
		plain, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		want := unmanaged(t, plain)
		if meta, ok := o["metadata"].(map[string]any); ok {
			if fields, there := meta["managedFields"]; there {
				if _, list := fields.([]any); !list {
					want["metadata"].(map[string]any)["managedFields"] = fields
				}
			}
		}
		var got map[string]any
		in = json.NewDecoder(bytes.NewReader(withoutManagedFields(plain)))
		in.UseNumber()
		if err := in.Decode(&got); err != nil {
			t.Fatalf("%s: %v", plain, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s:\n%s", plain, diff)
		}
	})
}
