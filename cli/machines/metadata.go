package machines

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// Metadata makes the command "souk metadata".
func Metadata(c *cli.Env) *cobra.Command {
	var nonce string
	show := func(cmd *cobra.Command, refs []string) error {
		cl, m, err := c.One(cmd, refs[0])
		if err != nil {
			return err
		}
		kv, err := cl.Metadata(cmd.Context(), m.App, m.ID)
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, kv)
			return nil
		}
		var rows [][]cli.Cell
		for _, p := range strings.Fields(cli.Pairs(kv)) {
			k, v, _ := strings.Cut(p, "=")
			rows = append(rows, cli.Cells(k, v))
		}
		c.Table([]cli.Column{cli.Keep("KEY").Cut(8), cli.Keep("VALUE").Cut(8)}, rows)
		return nil
	}
	change := func(cmd *cobra.Command, ref string, kv map[string]*string) error {
		cl, m, err := c.One(cmd, ref)
		if err != nil {
			return err
		}
		if err := cl.PatchMetadata(cmd.Context(), m.App, m.ID, nonce, kv); err != nil {
			return err
		}
		c.Say("changed metadata", m.ID, "the metadata of %s is changed; nothing that runs was touched", cli.Label(m))
		return nil
	}
	set := &cobra.Command{
		Use:     "set MACHINE KEY=VALUE...",
		Short:   "Set keys",
		Example: "  souk metadata set web role=front",
		Args:    cli.Args(2, -1, "a machine and KEY=VALUE"),
	}
	set.RunE = func(cmd *cobra.Command, given []string) error {
		kv, err := KeyValues("metadata", given[1:], nil)
		if err != nil {
			return err
		}
		patch := map[string]*string{}
		for k, v := range kv {
			patch[k] = &v
		}
		return change(cmd, given[0], patch)
	}
	unset := &cobra.Command{Use: "unset MACHINE KEY...", Short: "Delete keys",
		Example: "  souk metadata unset web role",
		Args:    cli.Args(2, -1, "a machine and keys")}
	unset.RunE = func(cmd *cobra.Command, given []string) error {
		patch := map[string]*string{}
		for _, k := range given[1:] {
			patch[k] = nil
		}
		return change(cmd, given[0], patch)
	}
	cmd := cli.Parent(&cobra.Command{Use: "metadata MACHINE", Short: "Show and change a machine's metadata",
		Example: "  souk metadata web\n  souk metadata set web " +
			"role=front", Args: cli.Args(1, 1, "one machine, or set or unset"), RunE: show}, set, unset)
	cmd.PersistentFlags().StringVar(&nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	return cmd
}
