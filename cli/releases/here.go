package releases

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// AppHere is the app that a command means in a directory with a souk.toml, and whether that file names it: what --app
// says, then the file, as deploy has it, then SOUK_APP, then the default.
func AppHere(c *cli.Env, cmd *cobra.Command) (app string, ofFile bool, err error) {
	if f := cmd.Flag("app"); f != nil && f.Changed || !isFile(defaultFile) {
		return c.AppOrDefault(), false, nil
	}
	m, err := readManifest(c, defaultFile)
	if err != nil {
		return "", false, err
	}
	return cmp.Or(m.App, c.AppOrDefault()), m.App != "", nil
}
