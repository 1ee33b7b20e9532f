package cmd

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/render"
)

// The exit codes, the same for every command and every -o.
const (
	exitOK          = 0
	exitNoDocument  = 1   // no document could be made
	exitUsage       = 2   // wrong arguments
	exitFindings    = 3   // findings at or above --fail-on
	exitMissing     = 4   // a source that the question needs is missing
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// exitStatus is the section of long helps that explains the codes.
const exitStatus = `EXIT STATUS
  0    a document was printed
  1    no document could be made
  2    wrong arguments
  3    findings at or above --fail-on
  4    a source of evidence that the question needs is missing: the document says which
  130  interrupted`

// usageError is a wrong use of the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// exitError ends the program with a code and without a word: the document says it all.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// exit is the one place where errors become words and codes.
func (a *app) exit(command *cobra.Command, err error) int {
	var (
		silent   *exitError
		wrong    *usageError
		question *explain.UsageError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &silent):
		return silent.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, syscall.EPIPE):
		// Whoever read our output has seen enough.
		return exitOK
	case errors.As(err, &wrong), errors.As(err, &question), !a.began:
		a.complain(err)
		fmt.Fprintf(a.Err, "See '%s --help' for usage.\n", command.CommandPath())
		return exitUsage
	}
	a.complain(err)
	return exitNoDocument
}

// complain prints an error on one line, escaped: it may quote the names and contents of files.
func (a *app) complain(err error) {
	fmt.Fprintf(a.Err, "error: %s\n", render.Clean(err.Error()))
}

// note prints one line beside the document.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Err, "%s\n", render.Clean(fmt.Sprintf(format, args...)))
}
