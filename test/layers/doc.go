// Package layers holds the rules about which package may know which, as tests over the direct imports of
// every Go file. The rules are those of docs/architecture.md, each with its reason, which a failure prints.
package layers
