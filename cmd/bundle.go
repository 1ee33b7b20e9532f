package cmd

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/explain/nft"
)

// forPeople are the texts that a bundle carries beside its evidence, for whoever opens it without svcnet: what an audit
// of that evidence says, and rules as text that are evidence in the kernel's form only. They are made from the evidence
// alone, so that the same evidence gives the same bytes on every machine.
func forPeople(ctx context.Context, s *snapshot.Snapshot) ([]snapshot.Rendered, error) {
	texts := []snapshot.Rendered{{File: "version", Text: []byte(versionText() + "\n")}}
	doc, err := explain.Audit(s, explain.AuditOptions{})
	if err != nil {
		return nil, fmt.Errorf("audit the bundle: %w (do without the report with --no-report)", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, r := range []struct{ file, format string }{{"report.txt", defaultFormat}, {"report.json", "json"}} {
		var text bytes.Buffer
		// No terminal and no environment: nothing of this machine shows in it.
		page := &app{Streams: Streams{Out: &text}, env: func(string) string { return "" }}
		o := newOutput("Report")
		o.format, o.color = r.format, "never"
		show, err := o.printer(page)
		if err == nil {
			err = page.print(show, doc)
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", r.file, err)
		}
		texts = append(texts, snapshot.Rendered{File: r.file, Text: marked(r.file, text.Bytes())})
	}
	for _, e := range s.Of(snapshot.NFTNetlink) {
		// What cannot be read has its status in the report; there is no text of it.
		if rules, err := nft.ParseNetlink(e.Data, e.File); err == nil {
			file := textName(e.File, texts)
			texts = append(texts, snapshot.Rendered{File: file, Text: marked(file, []byte(rules.String()))})
		}
	}
	return texts, nil
}

// marked says in texts that could be taken for evidence what they are.
func marked(file string, text []byte) []byte {
	if !strings.HasSuffix(file, ".txt") {
		return text
	}
	return append([]byte(snapshot.RenderedMark+"\n\n"), text...)
}

// textName is where the text of a file of evidence goes: text/nft.txt for nft.nl, text/pods_store_web_nft.txt for that of
// a pod.
func textName(file string, taken []snapshot.Rendered) string {
	base := "text/" + unsafe.ReplaceAllString(strings.TrimSuffix(file, ".nl"), "_")
	name := base + ".txt"
	for n := 2; ; n++ {
		free := true
		for _, r := range taken {
			free = free && !strings.EqualFold(r.File, name)
		}
		if free {
			return name
		}
		name = fmt.Sprintf("%s-%d.txt", base, n)
	}
}
