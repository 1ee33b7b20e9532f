package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// source is one Go file of the module.
type source struct {
	// file is its path from the root of the repository, with forward slashes; folder is that of its package.
	file, folder string
	test         bool
	imports      []string
	syntax       *ast.File
}

// parse reads one file.
func parse(file, text string) (source, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return source{}, err
	}
	s := source{file: file, folder: path.Dir(file), test: strings.HasSuffix(file, "_test.go"), syntax: syntax}
	for _, i := range syntax.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return source{}, err
		}
		s.imports = append(s.imports, p)
	}
	return s, nil
}

// sources parses every Go file of the module, in the order of their paths. Folders with a go.mod of their own
// are other modules; testdata and hidden folders hold none of ours.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && !ourDir(name) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), string(text))
		if err != nil {
			t.Errorf("parse: %v", err)
			return nil
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found %d Go files below the root of the repository: that cannot be all", len(out))
	}
	return out
}

func ourDir(name string) bool {
	base := filepath.Base(name)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return false
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err != nil
}

// below tells whether a slash-separated path is a folder or lies in it. The empty folder holds everything.
func below(p, folder string) bool {
	return folder == "" || p == folder || strings.HasPrefix(p, folder+"/")
}

// belowAny tells whether a path lies in one of the folders.
func belowAny(p string, folders []string) bool {
	for _, f := range folders {
		if below(p, f) {
			return true
		}
	}
	return false
}
