package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTargets(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/a_test.go":          "package a\nfunc FuzzOne(f *testing.F) {\n}\nfunc TestX(t *testing.T) {}\nfunc FuzzTwo(f *testing.F) {}\n",
		"a/a.go":               "package a\nfunc FuzzNot(f *testing.F) {}\n",
		"b/c/d_test.go":        "package c\nfunc FuzzThree(fz *testing.F) {}\n// func FuzzComment(f *testing.F) {}\n",
		"b/testdata/e_test.go": "package e\nfunc FuzzHidden(f *testing.F) {}\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := targets(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []target{{"a", "FuzzOne"}, {"a", "FuzzTwo"}, {"b/c", "FuzzThree"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(target{})); diff != "" {
		t.Error(diff)
	}
}
