package server

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
)

func cmdAgentWithout(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "without FILE...",
		Short: "Say that a file of souk's is lost for good, so that it starts without",
		Long: `Say that files of a directory of souk's (of "souk agent" or "souk dev") are lost for good.

souk does not start where a file that it needs is missing or damaged: it would begin with an empty one and forget what
it has promised. Put the file back, or a backup of the whole directory, whenever there is one. Only where there is none,
name the file here, once. What is left of it is put aside, not removed, and the next start makes a new one:

  worker/journal          its machines are forgotten, and those that run are ended
  worker/run/lives        its machines' programs are ended, and started again
  catalog.journal         apps, secrets, policies and namespaces are forgotten, but for what other members know
  jobs.journal            jobs and their results are forgotten
  mesh/gossip/...              what was known of the other members is forgotten

Nothing is done until the next "souk agent" or "souk dev", which must not run meanwhile.`,
		Example: "  souk agent without /var/lib/souk/worker/journal",
		Args:    cli.Args(1, -1, "the files that are lost")}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		for _, path := range args {
			if err := without(c, path); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func without(c *cli.Env, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, node.CodePiece, "the absolute path of %s cannot be found", path)
	}
	dir := filepath.Dir(path)
	for !exists(filepath.Join(dir, "lock")) { // every souk directory has it
		up := filepath.Dir(dir)
		if up == dir {
			return fault.New(fault.NotFound, node.CodePiece,
				"%s does not lie in a directory of \"souk agent\" or \"souk dev\"", path)
		}
		dir = up
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	aside, err := node.GiveUp(dir, path, time.Now())
	if err != nil {
		return err
	}
	left := "nothing was left of it"
	if len(aside) > 0 {
		left = "what was left of it is in " + strings.Join(aside, ", ")
	}
	c.Say("piece", path, "%s is given up, and the next start makes it anew; %s", path, left)
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
