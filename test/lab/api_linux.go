package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// An APIError is a refusal of the API server.
type APIError struct {
	Method, Path string
	Code         int    // HTTP status
	Message      string // what the API server says
}

func (e *APIError) Error() string {
	return fmt.Sprintf("%s %s: %d: %s", e.Method, e.Path, e.Code, e.Message)
}

// a resource is where objects of a kind lie in the API.
type resource struct {
	apiVersion, kind, plural string
	namespaced, status       bool
}

var resources = []resource{
	{"apps/v1", "DaemonSet", "daemonsets", true, true},
	{"apps/v1", "Deployment", "deployments", true, true},
	{"discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true, false},
	{"networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true, false},
	{"networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", false, true},
	{"rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false, false},
	{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false, false},
	{"rbac.authorization.k8s.io/v1", "Role", "roles", true, false},
	{"rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true, false},
	{"v1", "ConfigMap", "configmaps", true, false},
	{"v1", "Endpoints", "endpoints", true, false},
	{"v1", "Namespace", "namespaces", false, true},
	{"v1", "Node", "nodes", false, true},
	{"v1", "Pod", "pods", true, true},
	{"v1", "Service", "services", true, true},
	{"v1", "ServiceAccount", "serviceaccounts", true, false},
}

// findResource takes a kind, and an apiVersion that may be empty.
func findResource(apiVersion, kind string) (resource, error) {
	for _, r := range resources {
		if r.kind == kind && (apiVersion == "" || r.apiVersion == apiVersion) {
			return r, nil
		}
	}
	return resource{}, fmt.Errorf("the lab does not know kind %q of %q: add a line to resources in api_linux.go", kind, apiVersion)
}

// path of one object.
func (r resource) path(namespace, name string) string {
	p := "/apis/" + r.apiVersion
	if r.apiVersion == "v1" {
		p = "/api/v1"
	}
	if r.namespaced {
		if namespace == "" {
			namespace = "default"
		}
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	return p + "/" + r.plural + "/" + url.PathEscape(name)
}

// an object is one decoded object with the place where it lies.
type object struct {
	resource
	namespace, name string
	fields          map[string]any
}

// Apply creates objects or brings them to the given state, by server-side apply: fields that the last Apply of an
// object gave and this one does not are removed. A status that is given takes the place of the one there, so a
// Service with status.loadBalancer, a Node with addresses or a Pod with podIPs goes in whole; none leaves it alone.
//
// Objects are YAML (string or []byte, several documents), map[string]any, types of k8s.io/api as values or
// pointers, or slices of these. Namespaced objects without a namespace go to "default".
func (l *Lab) Apply(ctx context.Context, objs ...any) error {
	all, err := decode(objs)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	for _, o := range all {
		status := o.fields["status"]
		delete(o.fields, "status")
		path := o.path(o.namespace, o.name)
		if err := l.apply(ctx, path, o.fields); err != nil {
			return err
		}
		if status == nil || !o.status {
			continue
		}
		if err := l.writeStatus(ctx, path, status); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) apply(ctx context.Context, path string, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	_, err = l.Request(ctx, http.MethodPatch, path+"?fieldManager=lab&force=true", "application/apply-patch+yaml", body)
	return err
}

// writeStatus puts a status in the place of the one there. It is not applied: the API server cannot apply two
// addresses of one type to a Node, and dual-stack ones have that.
func (l *Lab) writeStatus(ctx context.Context, path string, status any) error {
	body, err := l.Request(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	var whole map[string]any
	if err := json.Unmarshal(body, &whole); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if meta, ok := whole["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion") // whatever happened in between
	}
	whole["status"] = status
	if body, err = json.Marshal(whole); err != nil {
		return fmt.Errorf("write the status of %s: %w", path, err)
	}
	_, err = l.Request(ctx, http.MethodPut, path+"/status", "application/json", body)
	return err
}

// Replace puts objects in whole, as kubectl replace does: they must be there. A status is replaced as well.
func (l *Lab) Replace(ctx context.Context, objs ...any) error {
	all, err := decode(objs)
	if err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	for _, o := range all {
		body, err := json.Marshal(o.fields)
		if err != nil {
			return fmt.Errorf("replace %s %s: %w", o.kind, o.name, err)
		}
		path := o.path(o.namespace, o.name)
		if _, err := l.Request(ctx, http.MethodPut, path, "application/json", body); err != nil {
			return err
		}
		if o.fields["status"] == nil || !o.status {
			continue
		}
		if _, err := l.Request(ctx, http.MethodPut, path+"/status", "application/json", body); err != nil {
			return err
		}
	}
	return nil
}

// Patch sends a JSON merge patch to an object. subresource is "" or "status".
func (l *Lab) Patch(ctx context.Context, kind, namespace, name, subresource, patch string) error {
	r, err := findResource("", kind)
	if err != nil {
		return err
	}
	path := r.path(namespace, name)
	if subresource != "" {
		path += "/" + subresource
	}
	_, err = l.Request(ctx, http.MethodPatch, path, "application/merge-patch+json", []byte(patch))
	return err
}

// Delete removes an object at once, without grace; one that is not there is no error.
func (l *Lab) Delete(ctx context.Context, kind, namespace, name string) error {
	r, err := findResource("", kind)
	if err != nil {
		return err
	}
	_, err = l.Request(ctx, http.MethodDelete, r.path(namespace, name)+"?gracePeriodSeconds=0", "", nil)
	var refused *APIError
	if errors.As(err, &refused) && refused.Code == http.StatusNotFound {
		return nil
	}
	return err
}

// Get reads an object into a pointer: a type of k8s.io/api or a map.
func (l *Lab) Get(ctx context.Context, kind, namespace, name string, into any) error {
	r, err := findResource("", kind)
	if err != nil {
		return err
	}
	body, err := l.Request(ctx, http.MethodGet, r.path(namespace, name), "", nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("get %s %s: %w", kind, name, err)
	}
	return nil
}

// Request sends any request to the API server as admin and returns the body of the answer. What is not 2xx is an
// *APIError.
func (l *Lab) Request(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	return l.RequestAs(ctx, "admin", method, path, contentType, body)
}

// RequestAs is Request as "admin", "proxy" or "viewer".
func (l *Lab) RequestAs(ctx context.Context, user, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, apiURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+l.tokens[user])
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := l.api.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the API server: %w; its log is %s", err, l.apiLog())
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		var status struct{ Message string }
		if json.Unmarshal(answer, &status) != nil || status.Message == "" {
			status.Message = lastLines(answer, 20)
		}
		return nil, &APIError{method, path, resp.StatusCode, status.Message}
	}
	return answer, nil
}

// newAPIClient makes a client whose connections start in a namespace.
func newAPIClient(ns *Namespace, roots *x509.CertPool) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return ns.dialStream(ctx, address)
		},
	}}
}

// dialStream connects to an address, not a name, from inside the namespace.
func (n *Namespace) dialStream(ctx context.Context, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	f, err := n.connect(ctx, corev1.ProtocolTCP, to, DialOptions{})
	if err != nil {
		return nil, err
	}
	defer f.Close() // the connection has a duplicate
	return net.FileConn(f)
}

// decode takes what Apply takes.
func decode(objs []any) ([]object, error) {
	var out []object
	for _, o := range objs {
		switch o := o.(type) {
		case string:
			more, err := decodeYAML(o)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		case []byte:
			more, err := decodeYAML(string(o))
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		}
		if v := reflect.ValueOf(o); v.Kind() == reflect.Slice {
			for i := range v.Len() {
				more, err := decode([]any{v.Index(i).Interface()})
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
			}
			continue
		}
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("%T: %w", o, err)
		}
		one, err := decodeOne(text, typeOf(o))
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func decodeYAML(text string) ([]object, error) {
	var out []object
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		js, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return nil, fmt.Errorf("%w, in:\n%s", err, doc)
		}
		if string(js) == "null" {
			continue
		}
		one, err := decodeOne(js, "")
		if err != nil {
			return nil, fmt.Errorf("%w, in:\n%s", err, doc)
		}
		out = append(out, one)
	}
	return out, nil
}

// typeOf is the kind of an object by its Go type: those made in code mostly leave kind out.
func typeOf(o any) string {
	switch o.(type) {
	case corev1.Service, *corev1.Service:
		return "Service"
	case discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice:
		return "EndpointSlice"
	case corev1.Node, *corev1.Node:
		return "Node"
	case corev1.Pod, *corev1.Pod:
		return "Pod"
	case corev1.Namespace, *corev1.Namespace:
		return "Namespace"
	case corev1.ConfigMap, *corev1.ConfigMap:
		return "ConfigMap"
	}
	return ""
}

func decodeOne(text []byte, kind string) (object, error) {
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return object{}, err
	}
	var head struct {
		APIVersion, Kind string
		Metadata         struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return object{}, err
	}
	if head.Kind == "" {
		head.Kind = kind
	}
	r, err := findResource(head.APIVersion, head.Kind)
	if err != nil {
		return object{}, err
	}
	if head.Metadata.Name == "" {
		return object{}, fmt.Errorf("a %s without a name", r.kind)
	}
	if kind != "" {
		prune(fields)
	}
	fields["apiVersion"], fields["kind"] = r.apiVersion, r.kind
	return object{r, head.Metadata.Namespace, head.Metadata.Name, fields}, nil
}

// prune takes out what Go types write for nothing: a status of {"loadBalancer":{}} is no status there. In YAML it
// is one, and empties the Service's.
func prune(fields map[string]any) {
	if meta, ok := fields["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	if empty(fields["status"]) {
		delete(fields, "status")
	}
}

func empty(v any) bool {
	if v == nil {
		return true
	}
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for _, v := range m {
		if !empty(v) {
			return false
		}
	}
	return true
}
