package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// What a command takes of the flags that stand before all commands. How things are printed, --json and --wide, goes with
// every command: each prints something, errors if nothing else.
const (
	no     = ""                                // it asks no souk: it works on this host, or with files
	ofSouk = cli.FlagAddr + " " + cli.FlagSouk // it asks a souk, and what it is about is no app's or is named otherwise
	ofApps = ofSouk + " " + cli.FlagApp        // it asks a souk of things of an app
)

// takers lists the commands by what they take; one that is not listed does as the command that it is below.
//
//nolint:gochecknoglobals // a constant
var takers = map[string]string{
	ofApps: `run ps explain plan why-not gang submit job/ls status logs exec attach cp events get update edit rollback
		resize start stop restart suspend signal wait destroy metadata lease move deploy rebalance services proxy volumes
		secrets token/create`,
	ofSouk: `job scale releases pause resume promote trigger why routes apps image token members node top workers policy
		namespace quota doctor version`,
	cli.FlagApp: `sim/ab`,
	no:          `dev init join agent ca token/join context policy/check bench sim trace help completion`,
}

// takes says of each listed command what it takes.
func takes() map[string]string {
	all := map[string]string{}
	for its, commands := range takers {
		for _, c := range strings.Fields(commands) {
			all[strings.ReplaceAll(c, "/", " ")] = its
		}
	}
	return all
}

// bindGlobals tells each command what it takes of the flags that stand before all commands. The rest is refused there.
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
