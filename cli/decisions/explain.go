// Package decisions has the commands that explain placement: souk explain, plan and why-not.
package decisions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Explain makes the command "souk explain".
func Explain(c *cli.Env) *cobra.Command {
	number, request := 0, ""
	cmd := &cobra.Command{
		Use:   "explain MACHINE | DECISION",
		Short: "Tell why a machine is where it is, or was, and what each worker would say now",
		Long: `Tell why a machine is where it is: in sentences, why there, and why not on
the next best worker; then every worker that was considered, its verdict, its score and what the score is made of,
and each clause that said no, with its numbers. Then the same question asked again now.

A machine that is gone is explained from the log of decisions, by its id. So is a request that was refused: its
error tells the id of the decision. Where there were several decisions about a machine, --decision chooses one.

With --request it is a request that the proxy led to a machine: what became of it, and where the time went. Its id is
in the answer's header Fly-Request-Id and in the access log. The member that took the request keeps it, for a while,
where a machine was woken for it or it failed.

Of a job "souk job why" tells why it waits.`,
		Example: "  souk explain web\n  souk explain d891275c2e5118 --decision 1\n  souk explain " +
			"01M7Z6Z6JVTGHP383SEQVSDTA6\n" +
			"  souk explain web --json | jq '.decision.considered[] | {worker, score}'\n" +
			"  souk explain --request 01M84PDNYK1EG36XHDXASSQDZE",
		Args: func(cmd *cobra.Command, args []string) error {
			if request != "" {
				return cli.Args(0, 0, "no argument beside --request ID")(cmd, args)
			}
			return cli.Args(1, 1, "one machine, by id or name, or one decision by its id")(cmd, args)
		},
	}
	cmd.Flags().IntVar(&number, "decision", 0,
		"which of the machine's decisions, 1 being the oldest (default the newest)")
	cmd.Flags().StringVar(&request, "request", "", "the id of a request, in the place of a machine")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if request != "" {
			return explainRequest(cmd.Context(), c, request)
		}
		return explain(cmd.Context(), c, refs[0], number)
	}
	return cmd
}

func explain(ctx context.Context, c *cli.Env, ref string, number int) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if len(ref) == 26 && ref == strings.ToUpper(ref) {
		return explainDecision(ctx, c, cl, ref)
	}
	m, missing := c.Find(ctx, cl, ref)
	if missing != nil && fault.Is(missing, fault.NotFound) && jobs.ValidID(ref) {
		return fault.New(fault.NotFound, fault.CodeMachineNotFound,
			"no machine has the name %s, which is the id of a job; \"souk job why %s\" tells of a job", ref, ref)
	}
	if missing != nil && (!fault.Is(missing, fault.NotFound) || !machine.ValidID(ref)) {
		return missing
	}
	app := ""
	if missing == nil {
		app, ref = m.App, m.ID
	} else if app, err = appOfGone(ctx, c, cl, ref); err != nil {
		return err
	}
	if app == "" {
		return missing
	}
	e, err := cl.Explain(ctx, app, ref, number)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, e)
		return nil
	}
	title := ref
	if m != nil {
		title = fmt.Sprintf("%s (%s)", cli.Label(m), m.ID)
	}
	printExplanation(c, title, e)
	return nil
}

// appOfGone finds a gone machine's app in the decision log; "": unknown.
func appOfGone(ctx context.Context, c *cli.Env, cl *client.Client, id string) (string, error) {
	page, err := cl.Decisions(ctx, client.DecisionQuery{App: c.AppGiven(), Machine: id, Limit: 1})
	if err != nil || len(page.Decisions) == 0 {
		return "", err
	}
	return page.Decisions[0].Request.App, nil
}

func explainDecision(ctx context.Context, c *cli.Env, cl *client.Client, id string) error {
	d, err := cl.Decision(ctx, id)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, d)
		return nil
	}
	c.Printf("machine %s of app %s, %s\n", d.Decision.Request.Machine, d.Decision.Request.App,
		d.Decision.Request.Resources)
	printDecision(c, d.Decision, d.Sentences)
	return nil
}

func printExplanation(c *cli.Env, title string, e api.Explanation) {
	gone := ""
	if e.Worker == "" {
		gone = ", which is gone"
	}
	switch {
	case e.Decision != nil:
		c.Printf("%s%s\n", title, gone)
		printDecision(c, e.Decision, e.Sentences)
		for _, m := range e.Evicted {
			c.Printf("evicted for it: %s\n", victimText(m))
		}
		if n := len(e.Decisions); n > 1 {
			c.Printf("\nthis was decision %d of %d:\n", e.Number, n)
			for i, d := range e.Decisions {
				c.Printf("  %d  %s  %-8s %s %s\n", i+1, d.At.Local().Format(time.DateTime), d.Why, d.Outcome,
					d.Worker)
			}
		}
	case e.Placement != nil: // older than the log
		c.Printf("%s was placed on %s by policy %s: %s\n", title, e.Placement.Worker, e.Placement.Policy,
			e.Placement.Reason)
		printCandidates(c, e.Placement.Candidates, e.Placement.Worker)
	default:
		c.Printf("%s: no decision is recorded for it\n", title)
	}
	if e.Placement != nil && e.Placement.Shadow != nil && (e.Decision == nil || e.Decision.Shadow == nil) {
		where := e.Placement.Shadow.Worker
		if where == "" {
			where = "no worker"
		}
		c.Printf("\nthe policy %s, which only watches, would have chosen %s\n", e.Placement.Shadow.Policy,
			where)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(c.Err, "note: %s\n", n)
	}
	if len(e.Now) > 0 {
		c.Printf("\nasked again now:\n")
		printCandidates(c, e.Now, "")
	}
}

// printDecision prints a decision: sentences first, then when and how long, then the table.
func printDecision(c *cli.Env, d *decision.Decision, sentences []string) {
	for _, s := range sentences {
		c.Printf("  %s\n", s)
	}
	if d.Request.Scheduling.Strategy != "" || d.Strategy != decision.Direct {
		c.Printf("  strategy %s\n", d.Strategy)
	}
	c.Printf("  decision %s at %s took %s: %s to read the view, %s to rank, %s for %s\n\n", d.ID,
		d.At.Local().Format("2006-01-02 15:04:05.000"), millis(d.Took.Total), millis(d.Took.View), millis(d.Took.Rank),
		millis(d.Took.Ask), cli.NumberOf(len(d.Asks), "ask", "asks"))
	printConsidered(c, d)
}

func millis(f float64) string { return cli.Millis(time.Duration(f * float64(time.Millisecond))) }

// printConsidered prints the workers in a decision's record, and how many others there were.
func printConsidered(c *cli.Env, d *decision.Decision) {
	cs := make([]machine.Candidate, len(d.Considered))
	for i := range d.Considered {
		cs[i] = d.Considered[i].Candidate
	}
	printCandidates(c, cs, string(d.Winner))
	if left := d.Workers - len(cs); left > 0 {
		c.Printf("and %s, of which %d fit\n", cli.NumberOf(left, "other worker", "other workers"),
			d.Fitting-fitting(cs))
	}
}

func fitting(cs []machine.Candidate) (n int) {
	for i := range cs {
		if cs[i].Fits {
			n++
		}
	}
	return n
}

// printCandidates prints one row per worker: verdict, score, each term of the score that is not 0 for all, and why not.
func printCandidates(c *cli.Env, cs []machine.Candidate, chosen string) {
	names := map[string]bool{}
	for _, x := range cs {
		for _, t := range x.Terms {
			if t.Value != 0 {
				names[t.Name] = true
			}
		}
	}
	terms := slices.Sorted(maps.Keys(names))
	head := []cli.Column{cli.Keep("WORKER").Cut(6), cli.Keep("VERDICT"), cli.Drop("SCORE", 2)}
	for _, t := range terms {
		head = append(head, cli.Drop(strings.ToUpper(t), 1))
	}
	head = append(head, cli.Reason("WHY NOT"))
	var rows [][]cli.Cell
	for _, x := range cs {
		verdict := cli.Cell{Text: "fits", Colour: "32"}
		switch {
		case x.Worker == chosen && !x.Fits:
			verdict = cli.Cell{Text: "evicts", Colour: "33"}
		case x.Worker == chosen:
			verdict = cli.Cell{Text: "chosen", Colour: "32"}
		case !x.Fits:
			verdict = cli.Cell{Text: "no", Colour: "31"}
		}
		row := []cli.Cell{{Text: x.Worker}, verdict, {Text: fmt.Sprintf("%.3f", x.Score)}}
		if !x.Fits {
			row[2].Text = "-"
		}
		for _, t := range terms {
			text := "-"
			if v, has := x.Terms.Get(t); has {
				text = fmt.Sprintf("%+.3f", v)
			}
			row = append(row, cli.Cell{Text: text})
		}
		why := cli.ClausesText(x.Failing)
		if len(x.Notes) > 0 {
			why = strings.Join(append([]string{why}, x.Notes...), "; ")
		}
		rows = append(rows, append(row, cli.Cell{Text: strings.TrimPrefix(why, "; ")}))
	}
	c.Table(head, rows)
}
