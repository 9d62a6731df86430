package doctor

import (
	"fmt"
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
)

// Version makes the command "souk version".
func Version(c *cli.Env) *cobra.Command {
	return &cobra.Command{Use: "version",
		Short:   "Print the version of this program, and of the server when one answers",
		Example: "  souk version\n  souk version --json", Args: cli.Args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version string          `json:"version"`
				Go      string          `json:"go"`
				Server  *api.ServerInfo `json:"server"`
			}{Version: cli.Version(), Go: goruntime.Version()}
			if cl, err := c.Client(); err == nil {
				if sv, err := cl.Version(cmd.Context()); err == nil {
					v.Server = &sv
				} else if !fault.Is(err, fault.Unavailable) {
					return err
				}
			}
			if c.JSON {
				c.JSONLine(c.Out, v)
				return nil
			}
			fmt.Fprintf(c.Out, "souk %s (%s)\n", v.Version, v.Go)
			if v.Server != nil {
				fmt.Fprintf(c.Out, "server %s (%s)\n", v.Server.Version, v.Server.Go)
			}
			return nil
		}}
}
