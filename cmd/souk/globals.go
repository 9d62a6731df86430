package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// The global flags that a command takes. --json and --wide apply to every command, since each prints something, at
// least errors.
const (
	no     = ""                                // calls no souk: works on this host, or with files
	ofSouk = cli.FlagAddr + " " + cli.FlagSouk // calls a souk, about things that belong to no app or name it otherwise
	ofApps = ofSouk + " " + cli.FlagApp        // calls a souk about an app's things
)

// takers lists the commands by the global flags that they take; an unlisted one inherits from its parent.
//
//nolint:gochecknoglobals // a constant
var takers = map[string]string{
	ofApps: `run ps explain plan why-not gang submit sbatch job/ls status logs exec attach cp events get update edit rollback
		resize start stop restart suspend signal wait destroy metadata lease move deploy rebalance services proxy volumes
		secrets token/create`,
	ofSouk: `job scale releases pause resume promote trigger why routes apps image token members node top workers policy
		namespace quota doctor version schedulers/default schedulers/compare`,
	cli.FlagApp: `sim/ab`,
	no:          `dev init join agent ca token/join context policy/check bench sim trace schedulers help completion`,
}

// takes maps each listed command to the global flags that it takes.
func takes() map[string]string {
	all := map[string]string{}
	for its, commands := range takers {
		for _, c := range strings.Fields(commands) {
			all[strings.ReplaceAll(c, "/", " ")] = its
		}
	}
	return all
}

// bindGlobals sets the global flags that each command takes. A command refuses the others.
func bindGlobals(root *cobra.Command) {
	all := takes()
	var bind func(cmd *cobra.Command, path, has string)
	bind = func(cmd *cobra.Command, path, has string) {
		for _, sub := range cmd.Commands() {
			path := strings.TrimSpace(path + " " + sub.Name())
			its, listed := all[path]
			if !listed {
				its = has
			}
			cli.Takes(sub, its)
			bind(sub, path, its)
		}
	}
	bind(root, "", ofApps)
}
