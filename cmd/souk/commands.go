package main

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/apps"
	"github.com/soukhq/souk/cli/bench"
	"github.com/soukhq/souk/cli/cluster"
	"github.com/soukhq/souk/cli/decisions"
	"github.com/soukhq/souk/cli/doctor"
	"github.com/soukhq/souk/cli/jobs"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/cli/policies"
	"github.com/soukhq/souk/cli/quota"
	"github.com/soukhq/souk/cli/server"
	"github.com/soukhq/souk/cli/sim"
)

// root makes the whole command line.
func root(c *cli.Env) *cobra.Command {
	root := c.NewRoot()
	root.AddGroup(
		&cobra.Group{ID: "first", Title: "First:"},
		&cobra.Group{ID: "jobs", Title: "Short tasks:"},
		&cobra.Group{ID: "machines", Title: "Machines:"},
		&cobra.Group{
			ID:    "things",
			Title: "What machines use:",
		},
		&cobra.Group{ID: "cluster", Title: "A cluster of several hosts:"},
		&cobra.Group{ID: "souk", Title: "souk itself:"},
	)
	group := func(id string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	group("first", server.Dev(c), machines.Run(c), machines.Ps(c), decisions.Explain(c), decisions.Plan(c),
		decisions.WhyNot(c), machines.Gang(c))
	group("jobs", jobs.Submit(c), jobs.Job(c))
	group("machines", machines.Status(c), machines.Logs(c), machines.Exec(c), machines.Copy(c), machines.Events(c),
		machines.Start(c), machines.Stop(c), machines.Restart(c), machines.Suspend(c), machines.Signal(c),
		machines.Wait(c),
		machines.Destroy(c), machines.Metadata(c), machines.Lease(c))
	group("things", apps.Apps(c), apps.Volumes(c), apps.Secrets(c))
	group("cluster", server.Init(c), server.Token(c), server.Join(c), server.Agent(c), cluster.Members(c),
		cluster.Node(c),
		cluster.Top(c), server.CA(c))
	group("souk", cluster.Workers(c), policies.Policy(c), quota.Namespace(c), quota.Quota(c), doctor.Doctor(c),
		bench.Bench(c), sim.Sim(c), sim.Trace(c), doctor.Version(c))
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.GroupID = "souk"
		}
	}
	root.SetHelpCommandGroupID("souk")
	return root
}
