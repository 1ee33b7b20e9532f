//go:build !linux

package watch

import "time"

// CPUTime is 0: only a Linux machine is a node that is watched.
func CPUTime() time.Duration { return 0 }
