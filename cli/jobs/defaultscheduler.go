package jobs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/scheduler/registry"
)

// schedulersDefault makes the command "souk schedulers default".
func schedulersDefault(c *cli.Env) *cobra.Command {
	var namespace string
	var none bool
	cmd := &cobra.Command{
		Use:   "default [NAME[:N]]",
		Short: "Show or set the scheduler of jobs that name none, in a namespace or the cluster",
		Long: `Show which scheduler finds workers for jobs that name none, or set it: for the cluster, or with --namespace for the jobs
of a namespace's apps. A job that names no scheduler gets the one of its namespace, else the cluster's, else market, the
auction. "souk submit --scheduler" goes before any default. A job keeps the scheduler that it got when it was submitted.

A default is no demand: a job with a priority or with preferred workers, which only the auction knows, goes to the auction,
and "souk job status" says why.`,
		Args: cli.Args(0, 1, "one scheduler's name, --none, or nothing"),
		Example: "  souk schedulers default\n  souk schedulers default sparrow:4\n  souk schedulers default hawk " +
			"--namespace ml\n  souk schedulers default --none --namespace ml",
	}
	cmd.ValidArgsFunction = cobra.FixedCompletions(registry.Names(), cobra.ShellCompDirectiveNoFileComp)
	cmd.Flags().StringVar(&namespace, "namespace", "", "whose jobs are meant (default: the whole cluster's)")
	cmd.Flags().BoolVar(&none, "none", false, "set none: a namespace then has the cluster's, the cluster market")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if none && len(names) > 0 {
			return cli.Usagef("%s wants a scheduler's name or --none, not both", cmd.CommandPath())
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		var d api.SchedulerDefault
		switch {
		case none:
			d, err = cl.UnsetDefaultScheduler(cmd.Context(), namespace)
		case len(names) == 1:
			d, err = cl.SetDefaultScheduler(cmd.Context(), namespace, names[0])
		case namespace == "":
			return listDefaults(cmd.Context(), c, cl)
		default:
			d, err = cl.DefaultScheduler(cmd.Context(), namespace)
		}
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, d)
			return nil
		}
		c.Printf("jobs of %s that name no scheduler: %s%s%s\n", defaultOwner(d), d.Scheduler, comparedText(d),
			inheritedText(d))
		return nil
	}
	return cmd
}

// listDefaults prints the default schedulers of the cluster and of all namespaces.
func listDefaults(ctx context.Context, c *cli.Env, cl *client.Client) error {
	list, err := cl.DefaultSchedulers(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		cli.JSONList(c, list)
		return nil
	}
	rows := make([][]cli.Cell, 0, len(list))
	for _, d := range list {
		rows = append(rows, cli.Cells(defaultOwner(d), d.Scheduler+comparedText(d), fromText(d)))
	}
	c.Table(cli.Columns("JOBS OF", "SCHEDULER", "SET FOR"), rows)
	return nil
}

func defaultOwner(d api.SchedulerDefault) string {
	if d.Namespace == "" {
		return "the cluster"
	}
	return "namespace " + d.Namespace
}

// fromText says for what a default is set.
func fromText(d api.SchedulerDefault) string {
	switch d.From {
	case "namespace":
		return "the namespace"
	case "cluster":
		return "the cluster"
	}
	return "nothing: it is souk's own"
}

// inheritedText says where the default of a namespace or of the cluster is from, if it is not its own.
func inheritedText(d api.SchedulerDefault) string {
	switch {
	case d.From == "souk":
		return ", souk's own, as no default is set"
	case d.From == "cluster" && d.Namespace != "":
		return ", as in the whole cluster"
	}
	return ""
}

// comparedText says which scheduler a default is compared with now.
func comparedText(d api.SchedulerDefault) string {
	if d.Candidate == "" {
		return ""
	}
	return fmt.Sprintf(", compared with %s (%d %%)", d.Candidate, d.Share)
}
