package main

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/apps"
	"github.com/soukhq/souk/cli/bench"
	"github.com/soukhq/souk/cli/cluster"
	"github.com/soukhq/souk/cli/complete"
	"github.com/soukhq/souk/cli/contexts"
	"github.com/soukhq/souk/cli/decisions"
	"github.com/soukhq/souk/cli/doctor"
	"github.com/soukhq/souk/cli/images"
	"github.com/soukhq/souk/cli/jobs"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/cli/policies"
	"github.com/soukhq/souk/cli/quota"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/cli/server"
	"github.com/soukhq/souk/cli/services"
	"github.com/soukhq/souk/cli/sim"
)

// section is a part of the help with its commands, by name.
type section struct {
	id, title string
	commands  []entry
}

type entry struct {
	name string
	make func(*cli.Env) *cobra.Command
}

// sections returns all commands, in the order of the help.
func sections() []section {
	return []section{
		{"first", "First:", []entry{{"dev", server.Dev}, {"run", machines.Run}, {"ps", machines.Ps},
			{"explain", decisions.Explain}, {"plan", decisions.Plan}, {"why-not", decisions.WhyNot},
			{"gang", machines.Gang}}},
		{"jobs", "Short tasks:", []entry{{"submit", jobs.Submit}, {"job", jobs.Job}, {"sbatch", jobs.Sbatch},
			{"schedulers", jobs.Schedulers}}},
		{"machines", "Machines:", []entry{{"status", machines.Status}, {"logs", machines.Logs}, {"exec", machines.Exec},
			{"attach", machines.Attach},
			{"cp", machines.Copy}, {"events", machines.Events}, {"get", machines.Get},
			{"update", machines.Update}, {"edit", machines.Edit}, {"rollback", machines.Rollback},
			{"resize", machines.Resize},
			{"start", machines.Start}, {"stop", machines.Stop},
			{"restart", machines.Restart}, {"suspend", machines.Suspend}, {"signal", machines.Signal},
			{"wait", machines.Wait}, {"move", releases.Move}, {"destroy", machines.Destroy},
			{"metadata", machines.Metadata},
			{"lease", machines.Lease}}},
		{"kept", "Services, whose machines souk keeps:", []entry{{"deploy", releases.Deploy}, {"scale", releases.Scale},
			{"releases", releases.Releases}, {"pause", releases.Pause}, {"resume", releases.Resume},
			{"promote", releases.Promote}, {"rebalance", releases.Rebalance}, {"trigger", releases.Trigger},
			{"why", releases.Why}}},
		{"requests", "Requests from outside:", []entry{{"services", services.Services}, {"routes", services.Routes},
			{"proxy", services.Proxy}}},
		{"things", "What machines use:", []entry{{"apps", apps.Apps}, {"volumes", apps.Volumes},
			{"secrets", apps.Secrets}, {"image", images.Images}}},
		{"cluster", "A cluster of several hosts:", []entry{{"init", server.Init}, {"token", server.Token},
			{"join", server.Join}, {"agent", server.Agent}, {"members", cluster.Members}, {"node", cluster.Node},
			{"top", cluster.Top}, {"ca", server.CA}}},
		{"souk", "souk itself:", []entry{{"context", contexts.Context}, {"workers", cluster.Workers},
			{"policy", policies.Policy}, {"namespace", quota.Namespace}, {"quota", quota.Quota},
			{"doctor", doctor.Doctor}, {"bench", bench.Bench}, {"sim", sim.Sim}, {"trace", sim.Trace},
			{"version", doctor.Version}}},
	}
}

// rootFor makes the command line for one invocation. If its first word names a command it makes only that one: making
// all commands with their flags is a tenth of a short command's time. For an alias, a leading flag, help, completion or
// a mistake it makes all.
func rootFor(c *cli.Env, argv []string) *cobra.Command {
	for _, s := range sections() {
		for _, e := range s.commands {
			if len(argv) > 0 && argv[0] == e.name {
				root := c.NewRoot()
				root.CompletionOptions.DisableDefaultCmd = true
				root.AddCommand(e.make(c))
				bindGlobals(root)
				return root
			}
		}
	}
	return root(c)
}

// root makes the whole command line.
func root(c *cli.Env) *cobra.Command {
	root := c.NewRoot()
	for _, s := range sections() {
		root.AddGroup(&cobra.Group{ID: s.id, Title: s.title})
		for _, e := range s.commands {
			cmd := e.make(c)
			cmd.GroupID = s.id
			root.AddCommand(cmd)
		}
	}
	root.InitDefaultCompletionCmd()
	c.AddHelp(root)
	if cmd, _, err := root.Find([]string{"completion", "bash"}); err == nil {
		cli.Parent(cmd.Parent())
		cmd.Parent().GroupID = "souk"
		complete.Bash(c, cmd)
	}
	root.SetHelpCommandGroupID("souk")
	bindGlobals(root)
	complete.Attach(c, root)
	return root
}
