package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

const (
	modulePath = "github.com/svcnet/svcnet"
	schemaBase = "https://svcnet.dev/schema/"
)

// generate makes the schema of one document. It is strict: properties that no type has are refused, all that
// are not optional are required, words are confined to their lists, shares to 0..1.
func generate(root string, d document) ([]byte, error) {
	results, err := resultWords(root)
	if err != nil {
		return nil, err
	}
	r := jsonschema.Reflector{Anonymous: true}
	if r.CommentMap, err = comments(root); err != nil {
		return nil, err
	}
	s := r.Reflect(d.value)
	s.ID = jsonschema.ID(schemaBase + filepath.Base(d.file))
	s.Title = "svcnet " + d.kind

	pointers := nullable(reflect.TypeOf(d.value))
	lists := words()
	for name, def := range s.Definitions {
		for p := def.Properties.Oldest(); p != nil; p = p.Next() {
			key := name + "." + p.Key
			if list, ok := lists[key]; ok {
				p.Value.Enum = list
			} else if p.Key == "result" {
				p.Value.Enum = results
			}
			bound(p.Key, p.Value)
			if pointers[key] {
				p.Value = orNull(p.Value)
			}
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema of %s: %w", d.kind, err)
	}
	return append(bytes.TrimSpace(text), '\n'), nil
}

// comments reads those of package report; line breaks in them mean nothing in a schema.
func comments(root string) (map[string]string, error) {
	var r jsonschema.Reflector
	// The path is what the comments' type names are made of: it has to be relative to the module.
	if err := r.AddGoComments(modulePath, filepath.Join(root, "explain", "report"), jsonschema.WithFullComment()); err != nil {
		return nil, fmt.Errorf("read the comments of package report: %w", err)
	}
	out := map[string]string{}
	for name, text := range r.CommentMap {
		if i := strings.Index(name, "explain/report"); i >= 0 {
			name = modulePath + "/" + name[i:]
		}
		out[name] = strings.Join(strings.Fields(text), " ")
	}
	return out, nil
}

// bound gives numbers the range that their name promises.
func bound(name string, s *jsonschema.Schema) {
	switch name {
	case "probability", "cumulative":
		s.Minimum, s.Maximum = "0", "1"
	case "port":
		if s.Type == "integer" {
			s.Minimum, s.Maximum = "0", "65535"
		}
	case "rule", "line":
		if s.Type == "integer" {
			s.Minimum = "0"
		}
	case "intended":
		if s.Type == "number" {
			s.Minimum, s.Maximum = "0", "1"
		}
	}
}

// orNull lets a property be null too. The description stays outside, where readers look for it.
func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	description := s.Description
	s.Description = ""
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}, Description: description}
}

// nullable finds the properties that are pointers and always written, by "Type.property": they are null
// when there is nothing to say.
func nullable(t reflect.Type) map[string]bool {
	out := map[string]bool{}
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omitempty") {
				out[t.Name()+"."+name] = true
			}
			visit(f.Type)
		}
	}
	visit(t)
	return out
}
