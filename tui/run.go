package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/svcnet/svcnet/tui/quiet"
)

// Bubbletea is ready before this package is: what kept it from asking the terminal ends here.
var _ = quiet.Over()

// errGone ends a program whose terminal is closed.
var errGone = errors.New("the terminal is gone")

// Run shows the program on a terminal until the user quits, ctx ends (whose error it returns), or the terminal is gone.
// Keys come from in, and out is drawn on. On every way out the terminal is as it was before Run returns. Commands that
// read the node may still run then; the context that the feed's functions got is over.
func Run(ctx context.Context, f *Feed, l Look, in, out *os.File) error {
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	r := &running{ctx: within, end: end, keys: &keyboard{File: in}, screen: &display{File: out}}
	r.keys.gone = func(err error) { end(fmt.Errorf("read keys: %w: %w", errGone, err)) }
	model := &guarded{Model: New(within, f, l, r.screen.aside), failed: func(m *mistake) {
		m.name = f.Name
		end(m)
	}}
	r.program = tea.NewProgram(model,
		tea.WithContext(within), tea.WithInput(r.keys), tea.WithOutput(r.screen),
		tea.WithAltScreen(), tea.WithMouseCellMotion(), tea.WithFilter(r.filter),
		// Signals end ctx. Of two that listen, one would be late.
		tea.WithoutSignalHandler(),
	)
	_, err := r.program.Run()
	var made *mistake
	switch cause := context.Cause(within); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(cause, &made), errors.Is(cause, errGone):
		return cause
	case err != nil:
		return fmt.Errorf("show the screen: %w (`%s audit` prints the same)", err, f.Name)
	}
	return nil
}

// running is one run.
type running struct {
	ctx     context.Context
	end     context.CancelCauseFunc
	program *tea.Program
	keys    *keyboard
	screen  *display
}

// filter sees what comes before the model does.
func (r *running) filter(_ tea.Model, msg tea.Msg) tea.Msg {
	switch msg.(type) {
	case tea.SuspendMsg:
		return r.suspend(msg)
	case tea.ResumeMsg:
		return tea.EnableMouseCellMotion() // bubbletea does not
	}
	return msg
}

// guarded ends the program when the model, or a command that it gave, panics: bubbletea would print a stack, some of it
// across the screen.
type guarded struct {
	tea.Model
	failed func(*mistake)
}

// caught is deferred.
func (g *guarded) caught() {
	if v := recover(); v != nil {
		g.failed(&mistake{value: v, where: culprit()})
	}
}

// Init begins.
func (g *guarded) Init() tea.Cmd {
	defer g.caught()
	return g.command(g.Model.Init())
}

// Update tells the model what happened.
func (g *guarded) Update(msg tea.Msg) (model tea.Model, cmd tea.Cmd) {
	model = g // of a panic too
	defer g.caught()
	_, cmd = g.Model.Update(msg)
	return model, g.command(cmd)
}

// View draws.
func (g *guarded) View() string {
	defer g.caught()
	return g.Model.View()
}

// command is a command whose panics are caught, and those of the commands that it gives.
func (g *guarded) command(c tea.Cmd) tea.Cmd {
	if c == nil {
		return nil
	}
	return func() tea.Msg {
		defer g.caught()
		msg := c()
		if batch, ok := msg.(tea.BatchMsg); ok {
			for i := range batch {
				batch[i] = g.command(batch[i])
			}
		}
		return msg
	}
}

// mistake is one of this program's: a panic.
type mistake struct {
	value       any
	where, name string
}

func (m *mistake) Error() string {
	return fmt.Sprintf("this is a mistake of svcnet: %v, %s (please report this line; `%s audit` prints what the screen shows)", m.value, m.where, m.name)
}

// culprit is the function that panicked, for a deferred one.
func culprit() string {
	frames := runtime.CallersFrames(callers())
	panicked := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s at %s:%d", filepath.Base(f.Function), filepath.Base(f.File), f.Line)
		}
		if !more {
			return "somewhere"
		}
	}
}

func callers() []uintptr {
	pc := make([]uintptr, 64)
	return pc[:runtime.Callers(1, pc)]
}
