package hns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrNothing is for text that holds neither load balancers nor endpoints.
var ErrNothing = errors.New("neither load balancers nor endpoints of HNS in it")

// Parse reads a capture in any form, of load balancers, endpoints or both, into s: JSON of hnsdiag -d or of PowerShell's
// ConvertTo-Json, hnsdiag's tables, and PowerShell's own list form. What cannot be used is a Problem. Settle comes after
// the last capture.
func Parse(s *State, text, file string) ([]Problem, error) {
	r := &reading{state: s, file: file}
	r.lines(text)
	switch {
	case r.used > 0:
		return r.problems, nil
	case len(r.problems) > 0:
		return nil, fmt.Errorf("line %d: %s", r.problems[0].Line, r.problems[0].Why)
	}
	return nil, ErrNothing
}

// reading is one capture while it is read.
type reading struct {
	state    *State
	file     string
	used     int
	problems []Problem
}

const (
	// maxProblems bounds what is kept of a capture that is broken throughout.
	maxProblems = 1000
	// maxNesting is how deep lists within "value" or a section are looked for.
	maxNesting = 4
)

func (r *reading) problem(line int, format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{line, fmt.Sprintf(format, args...)})
	}
}

// add takes in a load balancer.
func (r *reading) add(b LoadBalancer) {
	r.used++
	if !r.state.add(b) {
		r.problem(b.Line, "the load balancer %s has more than %d port mappings: the rest is left out", b.ID, maxMappings)
	}
}

// object is one JSON object with the line at which it begins.
type object struct {
	line   int
	fields map[string]json.RawMessage
}

// json reads the JSON document that text begins with, and says how many bytes it takes. A list is read object by object,
// so that what was cut off leaves the rest.
func (r *reading) json(text string, line int) (used int) {
	at := &position{text: text, line: line}
	d := json.NewDecoder(strings.NewReader(text))
	if strings.HasPrefix(text, "[") {
		if !r.list(at, d, 0, 0) {
			return len(text)
		}
		return int(d.InputOffset())
	}
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		r.problem(at.of(int(d.InputOffset())), "JSON cannot be read on from here: %v", err)
		return len(text)
	}
	used = int(d.InputOffset())
	r.value(at, value, used-len(value), 0)
	return used
}

// value reads an object that begins at an offset, also one with "value" and "Count", in which Windows PowerShell wraps a
// list.
func (r *reading) value(at *position, value json.RawMessage, offset, depth int) {
	o := object{line: at.of(offset)}
	if depth > maxNesting || len(value) == 0 || value[0] != '{' || json.Unmarshal(value, &o.fields) != nil {
		return
	}
	for _, section := range []string{"value", "LoadBalancers", "PolicyLists", "Endpoints"} {
		if raw := o.raw(section); len(raw) > 0 && raw[0] == '[' {
			begin := max(bytes.Index(value, raw), 0)
			r.list(at, json.NewDecoder(bytes.NewReader(raw)), offset+begin, depth+1)
		}
	}
	r.object(o)
}

// list reads the objects of a list that begins at an offset; false where it is cut off.
func (r *reading) list(at *position, d *json.Decoder, offset, depth int) bool {
	if _, err := d.Token(); err != nil {
		return false
	}
	for d.More() {
		var item json.RawMessage
		if err := d.Decode(&item); err != nil {
			r.problem(at.of(offset+int(d.InputOffset())), "the list cannot be read on from here: %v", err)
			return false
		}
		r.value(at, item, offset+int(d.InputOffset())-len(item), depth)
	}
	if _, err := d.Token(); err != nil {
		r.problem(at.of(offset+int(d.InputOffset())), "the list cannot be read on from here: %v", err)
		return false
	}
	return true
}

// position tells the line of an offset; offsets mostly grow.
type position struct {
	text string
	seen int
	line int
}

func (p *position) of(offset int) int {
	offset = min(max(offset, 0), len(p.text))
	if offset < p.seen {
		return max(p.line-strings.Count(p.text[offset:p.seen], "\n"), 1)
	}
	p.line += strings.Count(p.text[p.seen:offset], "\n")
	p.seen = offset
	return p.line
}

// object reads an object of either schema for what its fields say that it is. Networks and namespaces, which captures of
// everything hold too, are passed over.
func (r *reading) object(o object) {
	switch {
	case o.has("Subnets"), o.has("Ipams"), o.has("CompartmentId"), o.has("NamespaceId"):
	case o.has("PortMappings"), o.has("HostComputeEndpoints") && !o.has("HostComputeNetwork"):
		r.balancer2(o)
	case o.has("References"), o.has("Policies") && !o.isEndpoint() && bytes.Contains(o.raw("Policies"), []byte("ELB")):
		r.policyList(o)
	case o.isEndpoint():
		r.endpoint(o)
	}
}

// has tells whether a field is there, whatever the case of its letters.
func (o *object) has(name string) bool { return o.raw(name) != nil }

func (o *object) isEndpoint() bool {
	return o.has("IPAddress") || o.has("IPv6Address") || o.has("IpConfigurations") || o.has("IsRemoteEndpoint") || o.has("HostComputeNetwork") && !o.has("PortMappings")
}

// raw is a field's value, nil for one that is not there or null. PowerShell does not care for the case of names.
func (o *object) raw(name string) json.RawMessage {
	v, ok := o.fields[name]
	if !ok {
		for k := range o.fields {
			if strings.EqualFold(k, name) {
				v = o.fields[k]
				break
			}
		}
	}
	if len(v) == 0 || string(v) == "null" {
		return nil
	}
	return v
}

// text is a field as text: a string, or a number or truth value as written.
func (o *object) text(name string) string { return textOf(o.raw(name)) }

func textOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return strings.TrimSpace(s)
	}
	if raw[0] == '{' || raw[0] == '[' {
		return ""
	}
	return string(raw)
}

// words are the texts of a list; where the capture was not deep enough PowerShell has made one text of it.
func (o *object) words(name string) []string {
	raw := o.raw(name)
	if len(raw) > 0 && raw[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return nil
		}
		var out []string
		for _, item := range list {
			if s := textOf(item); s != "" {
				out = append(out, s)
			}
		}
		return out
	}
	return strings.Fields(textOf(raw))
}

// objects are the objects of a list, or the one that stands in its place. opaque tells that the capture was not deep
// enough to show them.
func (o *object) objects(name string) (out []object, opaque bool) {
	raw := o.raw(name)
	if raw == nil {
		return nil, false
	}
	var list []json.RawMessage
	if raw[0] == '[' {
		if json.Unmarshal(raw, &list) != nil {
			return nil, true
		}
	} else {
		list = []json.RawMessage{raw}
	}
	for _, item := range list {
		x := object{line: o.line}
		switch {
		case len(item) > 0 && item[0] == '{' && json.Unmarshal(item, &x.fields) == nil:
			out = append(out, x)
		case len(item) > 0 && item[0] == '"':
			fields, ok := hashtable(textOf(item))
			if !ok {
				opaque = true
				continue
			}
			x.fields = fields
			out = append(out, x)
		}
	}
	return out, opaque
}

// flag is a truth value, or a set of bits or words that holds one.
func (o *object) flag(name string, bit int, word string) bool {
	text := o.text(name)
	if n, err := strconv.Atoi(text); err == nil {
		return n&bit != 0
	}
	if strings.EqualFold(text, "true") {
		return true
	}
	for _, w := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '|' }) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

// protocols by the names of the HCN schema; kube-proxy writes numbers.
var protocols = map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}

func protocolOf(text string) uint8 {
	if p, ok := protocols[strings.ToLower(text)]; ok {
		return p
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0
	}
	return uint8(n)
}

// port is a port number; ok is false for what is none.
func (o *object) port(name string) (uint16, bool) {
	text := o.text(name)
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil
}

func address(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

func addresses(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		if a := address(t); a.IsValid() && !a.IsUnspecified() && len(out) < maxAddresses {
			out = append(out, a)
		}
	}
	return out
}

// balancer2 reads a load balancer of version 2.
func (r *reading) balancer2(o object) {
	id, ok := identifier(o.text("ID"))
	if !ok {
		r.problem(o.line, "a load balancer without an ID")
		return
	}
	b := LoadBalancer{
		ID: id, SourceVIP: address(o.text("SourceVIP")),
		DSR: o.flag("Flags", 1, "EnableDirectServerReturn"), IPv6: o.flag("Flags", 2, "IPv6"), Evidence: Evidence{r.file, o.line},
	}
	b.VIPs, b.hasVIPs = r.vips(&o, &o, "FrontendVIPs")
	b.Endpoints = identifiers(o.words("HostComputeEndpoints"))
	mappings, opaque := o.objects("PortMappings")
	if opaque || len(mappings) == 0 {
		r.problem(o.line, "the load balancer %s shows no port mapping (capture it with ConvertTo-Json -Depth 10)", id)
	}
	if len(mappings) == 0 {
		r.add(b)
		return
	}
	for _, m := range mappings {
		one := b
		var okIn, okOut bool
		one.Protocol = protocolOf(m.text("Protocol"))
		one.InternalPort, okIn = m.port("InternalPort")
		one.ExternalPort, okOut = m.port("ExternalPort")
		if !okIn || !okOut {
			r.problem(o.line, "the load balancer %s has a port that is none", id)
			continue
		}
		one.ILB = m.flag("Flags", 1, "EnableInternalLoadBalancer")
		one.LocalRoutedVIP = m.flag("Flags", 2, "LocalRoutedVip")
		one.UseMux = m.flag("Flags", 4, "UseMux")
		one.PreserveDIP = m.flag("Flags", 8, "EnablePreserveDip")
		one.ExternalVIP = m.flag("Flags", 16, "IsVipExternalIp")
		one.Distribution, one.HasDistribution = distributionOf(m.text("DistributionType")), true
		one.hasPort = true
		r.add(one)
	}
}

// vips are the virtual addresses of a load balancer, none for a node port. They are not known where a word is no
// address: the list form of PowerShell writes the name of the type in their place.
func (r *reading) vips(of, in *object, name string) (out []netip.Addr, known bool) {
	words := in.words(name)
	for _, w := range words {
		if strings.HasPrefix(w, "System.Object") {
			return nil, false
		}
		if !address(w).IsValid() {
			r.problem(of.line, "the load balancer %s has %q in place of an address", of.text("ID"), w)
			return nil, false
		}
	}
	return addresses(words), true
}

// distributions by the names of the HCN schema.
var distributions = map[string]int{"none": 0, "sourceipprotocol": 1, "sourceip": 2}

func distributionOf(text string) int {
	if n, ok := distributions[strings.ToLower(text)]; ok {
		return n
	}
	n, _ := strconv.Atoi(text)
	return n
}

func identifiers(texts []string) []string {
	var out []string
	for _, t := range texts {
		if id, ok := identifier(t); ok {
			out = append(out, id)
		}
	}
	return out
}

// policyList reads a policy list of version 1. Those that are no load balancer are passed over.
func (r *reading) policyList(o object) {
	id, ok := identifier(o.text("ID"))
	if !ok {
		r.problem(o.line, "a policy list without an ID")
		return
	}
	policies, opaque := o.objects("Policies")
	if opaque {
		r.problem(o.line, "the policies of %s are cut off (capture them with ConvertTo-Json -Depth 10)", id)
	}
	r.used++
	r.state.HasBalancers = true
	for _, p := range policies {
		if !strings.EqualFold(p.text("Type"), "ELB") {
			continue
		}
		b := LoadBalancer{
			ID: id, Endpoints: identifiers(o.words("References")), SourceVIP: address(p.text("SourceVIP")),
			DSR: p.flag("IsDSR", 1, "") || p.flag("DSR", 1, ""), ILB: p.flag("ILB", 1, ""), LocalRoutedVIP: p.flag("LocalRoutedVIP", 1, ""),
			PreserveDIP: p.flag("PreserveDIP", 1, ""), ExternalVIP: p.flag("IsVipExternalIP", 1, ""), UseMux: p.flag("UseMux", 1, ""),
			IPv6: p.flag("IPv6", 1, ""), Protocol: protocolOf(p.text("Protocol")), hasPort: true, Evidence: Evidence{r.file, o.line},
		}
		var okIn, okOut bool
		b.InternalPort, okIn = p.port("InternalPort")
		b.ExternalPort, okOut = p.port("ExternalPort")
		if !okIn || !okOut {
			r.problem(o.line, "the policy of %s has a port that is none", id)
			continue
		}
		b.VIPs, b.hasVIPs = r.vips(&o, &p, "VIPs")
		if d := p.text("DistributionType"); d != "" {
			b.Distribution, b.HasDistribution = distributionOf(d), true
		}
		if n, err := strconv.Atoi(o.text("State")); err == nil {
			b.State, b.HasState = n, true
		}
		r.add(b)
	}
}

// endpoint reads an endpoint of either version.
func (r *reading) endpoint(o object) {
	id, ok := identifier(o.text("ID"))
	if !ok {
		r.problem(o.line, "an endpoint without an ID")
		return
	}
	e := Endpoint{
		ID: id, Name: o.text("Name"), Network: o.text("VirtualNetworkName"),
		Remote:   o.flag("IsRemoteEndpoint", 1, "") || o.flag("Flags", 1, "RemoteEndpoint") && o.has("HostComputeNetwork"),
		Overlay:  strings.EqualFold(o.text("Type"), "Overlay"),
		Evidence: Evidence{r.file, o.line},
	}
	e.Addrs = addresses([]string{o.text("IPAddress"), o.text("IPv6Address")})
	configs, _ := o.objects("IpConfigurations")
	for _, c := range configs {
		if len(e.Addrs) < maxAddresses {
			e.Addrs = append(e.Addrs, addresses([]string{c.text("IpAddress")})...)
		}
	}
	policies, _ := o.objects("Policies")
	for _, p := range policies {
		// Only endpoints of overlay networks have an address of the underlay.
		if t := p.text("Type"); t == "PA" || t == "ProviderAddress" {
			e.Overlay = true
		}
	}
	r.used++
	r.state.addEndpoint(e)
}
