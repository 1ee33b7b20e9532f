package apply

import (
	"bytes"
	"testing"
)

// FuzzJournal reads any bytes as a journal: what is whole of it reads the same again, and says what became of the run.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"format":"svcnet.dev/repair-journal/v1","id":"a","steps":[{"step":1,"kind":"sysctl","undo":{"command":["x"]}}]}` + "\n" +
		`{"event":"begin","step":1}` + "\n" + `{"event":"done","step":1}` + "\n" + `{"event":"app`))
	f.Add([]byte("{}\n"))
	f.Add([]byte("{\"format\":\"svcnet.dev/repair-journal/v1\"}\n\n\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j := &journal{}
		whole, err := j.read(bytes.NewReader(data))
		if err != nil {
			return
		}
		again := &journal{}
		if n, err := again.read(bytes.NewReader(data[:whole])); err != nil || n != whole || len(again.events) != len(j.events) {
			t.Fatalf("%d bytes and %d events, and of these bytes %d and %d: %v", whole, len(j.events), n, len(again.events), err)
		}
		if r := j.run(); r.State != again.run().State {
			t.Fatalf("%s, and %s", r.State, again.run().State)
		}
	})
}
