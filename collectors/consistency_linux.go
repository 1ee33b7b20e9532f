package collectors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// An answer must be of one moment: rules of before a change beside rules of after it are rules that no packet
// ever met. Nothing holds the kernel still, so that a reading is compared with what was there before and after
// it, and made again when that differs.

// attempt is one reading of something that may change meanwhile.
type attempt struct {
	data []byte
	// before and after say what there was when reading began and ended; equal where nothing changed.
	before, after string
	// sure tells that the program that read sees to it by itself.
	sure bool
}

// patience says how often something is read again.
type patience struct {
	tries  int
	budget time.Duration
	// now and wait are the clock.
	now  func() time.Time
	wait func(ctx context.Context, d time.Duration)
}

// maxTries is how often a reading is made. Somebody who writes all the time, a proxy that cannot sync, would
// have it go on for ever.
const maxTries = 8

func (p *place) patience() patience {
	return patience{tries: maxTries, budget: p.timeout, now: time.Now, wait: func(ctx context.Context, d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}}
}

// inconsistent is the error of a reading of which no try was of one moment.
type inconsistent struct{ tries int }

func (e inconsistent) Error() string {
	return fmt.Sprintf("inconsistent: it changed during each of %d reads (run svcnet again when less happens)", e.tries)
}

// atOneMoment reads until a reading is of one moment. With the error inconsistent the data is that of the last
// try. An error of a try counts only when nothing changed: a table that is replaced while it is read can make a
// program fail.
func (w patience) atOneMoment(ctx context.Context, try func() (attempt, error)) ([]byte, error) {
	begun := w.now()
	for n := 1; ; n++ {
		from := w.now()
		a, err := try()
		took := w.now().Sub(from)
		var gone notInstalled
		var nothing noSubsystem
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && (a.before == a.after || errors.Is(err, fs.ErrPermission) || errors.As(err, &gone) || errors.As(err, &nothing)):
			return nil, err
		case err == nil && (a.sure || a.before == a.after):
			return a.data, nil
		}
		// Changes come in bursts: a little later there are fewer.
		pause := time.Duration(n) * 5 * time.Millisecond
		if n >= w.tries || w.now().Sub(begun)+pause+took > w.budget {
			if err != nil {
				return nil, err
			}
			return a.data, inconsistent{n}
		}
		w.wait(ctx, pause)
	}
}
