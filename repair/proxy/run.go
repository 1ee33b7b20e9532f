package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/svcnet/svcnet/explain/traits"
)

// ErrRunning is of a node on which a proxy runs already.
var ErrRunning = errors.New("a fallback proxy of svcnet runs on this node already")

// RuntimeFolder is where a running proxy says that it runs. It is gone with the machine.
const RuntimeFolder = "/run/svcnet"

// Running is what a proxy says of itself in its runtime file.
type Running struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Mode is kernel, iptables or userspace; Until says in words when it ends by itself.
	Mode  string `json:"mode"`
	Until string `json:"until"`
}

// Config is what a run of the proxy is told.
type Config struct {
	Objects *Objects
	Proxy   traits.Proxy
	// TTL ends the run; 0: it goes on.
	TTL time.Duration
	// Healthy tells whether kube-proxy serves by itself what this proxy serves, and if not, why: asked every HealthyEvery.
	// It has to say so twice in a row. Nil: nobody asks.
	Healthy      func(context.Context) (ok bool, why string)
	HealthyEvery time.Duration
	// Temporary tables end with the process, however it ends (table flag owner, kernel 5.12).
	Temporary bool
	// Started is called once all Services are in the kernel.
	Started func(Stats)
	// Progress is told what was done so far, after each transaction; nil: nobody is.
	Progress func(Stats)
	Log      func(format string, args ...any)
}

// Ending is why a run ended.
type Ending string

// The endings.
const (
	Interrupted Ending = "interrupted"
	Expired     Ending = "its time is over"
	HandedBack  Ending = "kube-proxy serves again"
)
