// Package terminal holds svcnet against a real terminal, a pseudo terminal of the kernel: what the interactive view leaves
// behind on every way out, and that no other command asks the terminal anything.
package terminal
