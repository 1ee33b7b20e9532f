package kernel

import (
	"github.com/svcnet/svcnet/explain/nft"
	"github.com/svcnet/svcnet/repair/proxy/table"
)

// Tables writes transactions of svcnet's own tables.
type Tables struct {
	writer *Writer
	batch  Batch
}

// OpenTables connects to nf_tables of the thread's network namespace.
func OpenTables() (*Tables, error) {
	w, err := Open()
	if err != nil {
		return nil, err
	}
	return &Tables{writer: w}, nil
}

// Write makes a transaction happen, whole or not at all.
func (t *Tables) Write(tx *table.Transaction) error {
	there := false
	if tx.Whole {
		var err error
		if there, err = t.Has(tx.Table.Family); err != nil {
			return err
		}
	}
	t.batch.Reset()
	if err := t.batch.Add(tx, there); err != nil {
		return err
	}
	err := t.writer.Send(&t.batch)
	if t.batch.Size() > keptBatch {
		t.batch = Batch{} // one that makes everything anew is rare, and large
	}
	return err
}

// keptBatch is how much memory is kept for the next transaction.
const keptBatch = 1 << 20

// Try tells why the kernel would not take a transaction that makes a table anew beside one that may be there; nil where it
// would. It does nothing.
func (t *Tables) Try(tx *table.Transaction) error {
	there, err := t.Has(tx.Table.Family)
	if err != nil {
		return err
	}
	t.batch.Reset()
	if err := t.batch.Add(tx, there); err != nil {
		return err
	}
	return t.writer.Try(&t.batch)
}

// Has tells whether the table of a family is there.
func (t *Tables) Has(family nft.Family) (bool, error) {
	return t.writer.Has(&nft.Table{Family: family, Name: table.Name})
}

// Remove deletes the tables of some families, whether they are there or not.
func (t *Tables) Remove(families ...nft.Family) error {
	for _, f := range families {
		there, err := t.Has(f)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		t.batch.Reset()
		t.batch.DeleteTable(&nft.Table{Family: f, Name: table.Name})
		if err := t.writer.Send(&t.batch); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection, and with it the tables that it owns.
func (t *Tables) Close() error { return t.writer.Close() }
