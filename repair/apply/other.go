//go:build !linux

package apply

import (
	"context"
	"os"

	"github.com/svcnet/svcnet/explain/report"
)

// Nodes run Linux: elsewhere there is nothing to write to.

const elsewhere = "svcnet writes on Linux nodes only: run it on the node"

type native struct{}

func (native) check(string, report.RepairCommand) error { return &Refusal{elsewhere} }

func (native) run(context.Context, string, report.RepairCommand, *lock) error {
	return &Refusal{elsewhere}
}

func (native) machine() (Machine, error) { return Machine{}, &Refusal{elsewhere} }

type lock struct{}

func hold(string, string) (*lock, error) { return nil, &Refusal{elsewhere} }

func (*lock) release() {}

func allocate(*os.File, int64) {}

func syncFolder(string) error { return nil }
