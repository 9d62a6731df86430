package doctor

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/check"
	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/fault"
)

// invariantFlags are the flags of souk doctor --invariants.
type invariantFlags struct {
	on      bool
	history string
	within  time.Duration
}

func (o *invariantFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "invariants", false, "check the whole cluster against what souk promises")
	f.StringVar(&o.history, "history", "",
		"a file of calls and answers, one a line (\"souk help history\"): what was acknowledged must be there")
	f.DurationVar(&o.within, "within", 30*time.Second,
		"how long members may take to agree and machines to settle; holds may take a minute")
}

func doInvariants(ctx context.Context, c *cli.Env, o *invariantFlags) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	var ops []history.Op
	if o.history != "" {
		if ops, err = history.Read(o.history); err != nil {
			return err
		}
	}
	done := c.Progress("checking")
	found, err := check.Invariants(ctx, cl, ops, o.within)
	done()
	if err != nil {
		return err
	}
	violated := 0
	for _, i := range found {
		if !i.OK {
			violated++
		}
		printInvariant(c, i)
	}
	if violated > 0 {
		return fault.New(fault.Internal, codeInvariants, "%d of %d invariants that were checked do not hold", violated,
			len(found))
	}
	return nil
}

func printInvariant(c *cli.Env, i check.Invariant) {
	if c.JSON {
		c.JSONLine(c.Out, i)
		return
	}
	mark := "ok      "
	if !i.OK {
		mark = "VIOLATED"
	}
	c.Printf("%s %2d  %s\n             %s\n", mark, i.Number, i.Name, i.Checked)
	for _, e := range i.Evidence {
		c.Printf("             - %s\n", e)
	}
}
