//go:build !linux

package collectors

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// FollowRules follows changes of rules, which only a Linux machine has.
func FollowRules(context.Context, time.Duration, func(Notice)) (Noticing, error) {
	return Noticing{}, errors.New("follow the rules of this machine: a node runs Linux, and this is " + runtime.GOOS)
}
