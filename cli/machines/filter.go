package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// filter chooses machines of a list. Each flag that is given must hold; of several values of one flag any will do, but
// metadata must hold all.
type filter struct {
	states, workers, metadata []string
	gang                      string
}

func (f *filter) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.states, "state", nil, "only machines in this state, or one of these: started,stopped")
	fs.StringSliceVar(&f.workers, "worker", nil, "only machines on this worker, or one of these")
	fs.StringVar(&f.gang, "gang", "", "only machines of this gang, by its id")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "only machines with KEY=VALUE in their metadata; repeatable")
}

func (f *filter) check() error {
	for _, s := range f.states {
		if !slices.Contains(machine.States(), machine.State(s)) {
			return cli.Usagef("--state is one of %s, not %q", strings.Trim(fmt.Sprint(machine.States()), "[]"), s)
		}
	}
	for _, m := range f.metadata {
		if !strings.Contains(m, "=") {
			return cli.Usagef("--metadata is written KEY=VALUE, not %q", m)
		}
	}
	return nil
}

// fits reports whether a machine is chosen, metadata aside.
func (f *filter) fits(l *machine.Line) bool {
	return (len(f.states) == 0 || slices.Contains(f.states, string(l.State))) &&
		(len(f.workers) == 0 || slices.Contains(f.workers, string(l.Worker))) &&
		(f.gang == "" || l.Gang == machine.GangPrefix+strings.TrimPrefix(f.gang, machine.GangPrefix))
}

// has reports whether a machine has the metadata that is asked for.
func (f *filter) has(m *machine.Machine) bool {
	for _, kv := range f.metadata {
		key, want, _ := strings.Cut(kv, "=")
		if m.Config == nil {
			return false
		}
		if got, ok := m.Config.Metadata[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// whole lists the chosen machines in full: of the given app, else of every app.
func (f *filter) whole(ctx context.Context, c *cli.Env, cl *client.Client,
	o client.ListOptions) ([]*machine.Machine, error) {
	ms, err := all(ctx, c, cl, o)
	return slices.DeleteFunc(ms, func(m *machine.Machine) bool {
		l := m.Line()
		return !f.fits(&l) || !f.has(m)
	}), err
}

// lines lists the chosen machines in one line each.
func (f *filter) lines(ctx context.Context, c *cli.Env, cl *client.Client,
	o client.ListOptions) ([]*machine.Line, error) {
	if len(f.metadata) > 0 { // lines lack metadata
		ms, err := f.whole(ctx, c, cl, o)
		out := make([]*machine.Line, len(ms))
		for i, m := range ms {
			l := m.Line()
			out[i] = &l
		}
		return out, err
	}
	ms, err := cl.MachineLines(ctx, client.LineOptions{ListOptions: o, App: c.AppGiven()})
	return slices.DeleteFunc(ms, func(l *machine.Line) bool { return !f.fits(l) }), err
}
