// Command schema writes the JSON Schema of svcnet's documents to docs/schema, from the types of package
// report and the comments beside them. Run it from the root of the repository:
//
//	go run ./hack/schema
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write makes every schema below root, the repository's.
func write(root string) error {
	for _, d := range documents() {
		text, err := generate(root, d)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, d.file), text, 0o644); err != nil {
			return fmt.Errorf("write schema of %s: %w", d.kind, err)
		}
	}
	return nil
}
