package releases

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// AppHere returns the app of a command in this directory, and whether its souk.toml names it: the first of --app, the
// file (as for deploy), SOUK_APP and the default.
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
