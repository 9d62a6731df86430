package jobs

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
)

// schedulerEntry is a scheduler as JSON shows it.
type schedulerEntry struct {
	registry.About
	Live      bool `json:"live"`      // souk submit --scheduler takes it
	Simulated bool `json:"simulated"` // souk sim run --scheduler takes it
}

const schedulersLong = `List the schedulers that find workers for the tasks of a job ("souk submit --scheduler NAME"), or describe one. market
is souk's own auction, which finds workers for all jobs that name no scheduler, unless another default is set ("souk
schedulers default"); the others are architectures of the literature. NAME:N sets the number that some of them take, such
as sparrow:4; without it they have a default. The number of market is for the simulator only.

All run live, on this cluster, and simulated, on a trace ("souk sim run --scheduler NAME"). What is left out of one is
what its paper has and souk has not. "Choosing a scheduler" in "souk help operating" says what a job without the auction
gives up.`

// Schedulers makes the command "souk schedulers".
func Schedulers(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedulers [NAME]",
		Short:   "List the schedulers that a job may name, or describe one",
		Long:    schedulersLong,
		Args:    cli.Args(0, 1, "one scheduler's name, or nothing"),
		Example: "  souk schedulers\n  souk schedulers hawk\n  souk schedulers --json | jq -r '.[].name'",
	}
	cmd.ValidArgsFunction = cobra.FixedCompletions(registry.Names(), cobra.ShellCompDirectiveNoFileComp)
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		list := registry.Abouts()
		if len(names) == 1 {
			about, _, err := registry.Parse(strings.ToLower(names[0]))
			if err != nil {
				return err
			}
			if c.JSON {
				c.JSONLine(c.Out, entryOf(about))
				return nil
			}
			printScheduler(c, &about)
			return nil
		}
		if c.JSON {
			entries := make([]schedulerEntry, 0, len(list))
			for _, a := range list {
				entries = append(entries, entryOf(a))
			}
			cli.JSONList(c, entries)
			return nil
		}
		printSchedulers(c, list)
		return nil
	}
	return cli.Parent(cmd, schedulersDefault(c), schedulersCompare(c))
}

func entryOf(a registry.About) schedulerEntry {
	return schedulerEntry{About: a, Live: true, Simulated: true}
}

// printSchedulers prints a row for each scheduler.
func printSchedulers(c *cli.Env, list []registry.About) {
	rows := make([][]cli.Cell, 0, len(list))
	for _, a := range list {
		without := ""
		if a.LeftOut != "" {
			without = "left out: " + a.LeftOut
		}
		rows = append(rows, cli.Cells(a.Name, cmp.Or(a.Number, "-"), a.Paper, without))
	}
	c.Table([]cli.Column{cli.Keep("NAME"), cli.Keep("N IN NAME:N").Cut(12), cli.Keep("PAPER").Cut(24),
		cli.Reason("")}, rows)
	c.Printf("\nAll run live and simulated; souk schedulers NAME describes one whole.\n")
}

// printScheduler prints all of one scheduler.
func printScheduler(c *cli.Env, a *registry.About) {
	c.Printf("%s\n", a.Name)
	c.Field("paper", "%s", a.Paper)
	switch {
	case a.Name == jobs.Auction:
		c.Field("number", "N in %s:N is %s, in the simulator only: live each member is one", a.Name, a.Number)
	case a.Number != "":
		c.Field("number", "N in %s:N is %s", a.Name, a.Number)
	}
	if a.LeftOut != "" {
		c.Field("left out", "%s", a.LeftOut)
	}
	if a.Name == jobs.Auction {
		c.Field("live", "souk submit, without --scheduler unless another default is set (souk schedulers default)")
	} else {
		c.Field("live", "souk submit --scheduler %s", a.Name)
	}
	c.Field("simulated", "souk sim run --scheduler %s", a.Name)
}
