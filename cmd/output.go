package cmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/svcnet/svcnet/explain/render"
	"github.com/svcnet/svcnet/explain/report"
)

// defaultFormat is what people get who ask for none.
const defaultFormat = "tree"

// output holds the flags that say how documents of one kind are printed.
type output struct {
	kind   string
	format string
	color  string
	flags  *genericclioptions.PrintFlags
}

func newOutput(kind string) *output {
	return &output{kind: kind, flags: genericclioptions.NewPrintFlags("")}
}

func (o *output) addFlags(c *cobra.Command) {
	c.Flags().StringVarP(&o.format, "output", "o", "", "Output format, one of: "+strings.Join(o.formats(), ", ")+` (default "`+defaultFormat+`")`)
	c.Flags().StringVar(&o.color, "color", "auto", "When to colour the output, one of: "+strings.Join(colorModes, ", "))
	c.Flags().StringVar(o.flags.TemplatePrinterFlags.TemplateArgument, "template", "", "Template string, or template file with -o go-template-file and -o jsonpath-file")
	mustComplete(c, "output", o.formats())
	mustComplete(c, "color", colorModes)
}

// formats are all names that -o takes, ours and those of kubectl.
func (o *output) formats() []string {
	all := o.flags.AllowedFormats()
	for _, f := range render.Formats() {
		if f.Shows(o.kind) {
			all = append(all, f.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// forPeople tells whether a document is shown as text that nobody reads by program.
func (o *output) forPeople() bool {
	return (o.format == "" || o.format == defaultFormat) && *o.flags.TemplatePrinterFlags.TemplateArgument == ""
}

// printer prints one document.
type printer func(w io.Writer, doc runtime.Object) error

// printer checks the flags and returns what prints, so that a wrong -o is found before any work is done.
func (o *output) printer(a *app) (printer, error) {
	if !slices.Contains(colorModes, o.color) {
		return nil, usage("--color %s is not one of: %s", o.color, strings.Join(colorModes, ", "))
	}
	name := o.format
	if name == "" && *o.flags.TemplatePrinterFlags.TemplateArgument != "" {
		name = "go-template"
	}
	if name == "" {
		name = defaultFormat
	}
	if f, ok := render.Lookup(name); ok && f.Shows(o.kind) {
		return func(w io.Writer, doc runtime.Object) error {
			return f.Show(w, doc, renderOptions(a.Out, o.color, a.env))
		}, nil
	}
	o.flags.OutputFormat = &name
	p, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, usage("-o %s is not a format; one of: %s", name, strings.Join(o.formats(), ", "))
	}
	if err != nil {
		return nil, usage("-o %s: %v", name, err)
	}
	return func(w io.Writer, doc runtime.Object) error { return printObject(w, p, name, doc, isTerminal(a.Out)) }, nil
}

// print writes a document to standard output.
func (a *app) print(show printer, doc runtime.Object) error {
	w := bufio.NewWriter(a.Out)
	if err := show(w, doc); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}

// printObject prints a document with a printer of kubectl: JSON on one line unless a person looks at it, and
// what templates print of foreign text without control of the terminal.
func printObject(w io.Writer, p printers.ResourcePrinter, format string, doc runtime.Object, tty bool) error {
	docs := []runtime.Object{doc}
	if format == "name" {
		docs = named(doc)
	}
	var text bytes.Buffer
	for _, doc := range docs {
		if err := p.PrintObj(doc, &text); err != nil {
			return fmt.Errorf("print -o %s: %w", format, err)
		}
	}
	if tty {
		return printers.WriteEscaped(w, text.String())
	}
	if format == "json" {
		var compact bytes.Buffer
		if err := json.Compact(&compact, text.Bytes()); err != nil {
			return fmt.Errorf("print -o json: %w", err)
		}
		compact.WriteByte('\n')
		text = compact
	}
	_, err := w.Write(text.Bytes())
	return err
}

// named is a document reduced to its kind and the name of what it is about; a list is each of its items.
func named(doc runtime.Object) []runtime.Object {
	one := func(kind metav1.TypeMeta, name string) []runtime.Object {
		return []runtime.Object{&metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	switch d := doc.(type) {
	case *report.Trace:
		return one(d.TypeMeta, d.Metadata.Name)
	case *report.NodeStatus:
		return one(d.TypeMeta, d.Node)
	case *report.Report:
		return one(d.TypeMeta, d.Node)
	case *report.Diff:
		return one(d.TypeMeta, d.After.Node)
	case *report.RepairPlan:
		return one(d.TypeMeta, d.Node)
	case *report.RepairRun:
		return one(d.TypeMeta, d.ID)
	case *report.RepairRuns:
		return namedItems(d.TypeMeta, d.Items, func(r *report.RepairRun) string { return r.ID })
	case *report.TraceList:
		return namedItems(d.TypeMeta, d.Items, func(t *report.Trace) string { return t.Node })
	case *report.NodeStatusList:
		return namedItems(d.TypeMeta, d.Items, func(s *report.NodeStatus) string { return s.Node })
	case *report.Reports:
		return namedItems(d.TypeMeta, d.Items, func(r *report.Report) string { return r.Node })
	}
	return []runtime.Object{doc}
}

// namedItems are the items of a list by the node of each.
func namedItems[T any](list metav1.TypeMeta, items []T, node func(*T) string) []runtime.Object {
	var out []runtime.Object
	for i := range items {
		out = append(out, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: list.APIVersion, Kind: strings.TrimSuffix(list.Kind, "List")},
			ObjectMeta: metav1.ObjectMeta{Name: node(&items[i])},
		})
	}
	return out
}

// mustComplete offers fixed values for a flag to shells. It panics for a flag that does not exist, which is a
// mistake in this package and shows in its first test.
func mustComplete(c *cobra.Command, flag string, values []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
