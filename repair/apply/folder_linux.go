package apply

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes room on disk without making the file longer. File systems that cannot do that do without.
func allocate(f *os.File, size int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// syncFolder puts the names in a folder on disk.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
