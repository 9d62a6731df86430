package apps

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Volumes makes the command "souk volumes".
func Volumes(c *cli.Env) *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		of := []string{c.AppGiven()}
		if of[0] == "" {
			all, err := cl.Apps(cmd.Context())
			if err != nil {
				return err
			}
			of = of[:0]
			for _, a := range all {
				of = append(of, a.Name)
			}
		}
		var vs []machine.Volume
		for _, app := range of {
			its, err := cl.Volumes(cmd.Context(), app)
			if err != nil && (c.AppGiven() != "" || !fault.Is(err, fault.NotFound)) { // the app may have gone meanwhile
				return err
			}
			vs = append(vs, its...)
		}
		printVolumes(c, vs)
		return nil
	}
	return cli.Parent(&cobra.Command{Use: "volumes", Short: "List, make and destroy volumes",
		Long: "A volume outlives the machines it is attached to. It is on one worker for life.\n" +
			"The list has those of all apps, or of the one of --app or $SOUK_APP.\n" +
			"No more can be written to it than its size, where its worker can see to that " +
			"(\"held\" in the list; souk doctor says why); else its size is only counted.",
		Example: "  souk volumes create data --size 1\n  souk run --volume data:/data -- /opt/db\n  souk volumes",
		Args:    cli.Args(0, 0, "no argument, or one of its commands"), RunE: list},
		cmdVolumeCreate(c), cmdVolumeExtend(c), cmdVolumeSnapshot(c), cmdVolumeDestroy(c))
}

func cmdVolumeCreate(c *cli.Env) *cobra.Command {
	var spec api.NewVolume
	var size int
	var from string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a volume",
		Example: "  souk volumes create data --size 1\n  souk volumes create copy --from data\n" +
			"  souk volumes create before --from vs_9e9b26e12c9fc8",
		Args: cli.Args(1, 1, "a name"),
	}
	cmd.Flags().IntVar(&size, "size", 1, "in GB (of a copy: that of what it is made of)")
	cmd.Flags().StringVar(&spec.Region, "region", "", "the region (default: the server's)")
	cmd.Flags().StringVar(&from, "from", "",
		"what it is a copy of: a volume, by name or id, or a snapshot of one, by id; it is made where that lies")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		app := c.AppOrDefault()
		spec.Name = given[0]
		if from == "" || cmd.Flags().Changed("size") {
			spec.SizeGB = &size
		}
		switch {
		case strings.HasPrefix(from, "vs_"):
			spec.SnapshotID = &from
		case from != "":
			_, v, err := volumeOf(c, cmd, from)
			if err != nil {
				return err
			}
			spec.SourceVolumeID = &v.ID
		}
		v, err := cl.CreateVolume(cmd.Context(), app, spec)
		if fault.Is(err, fault.NotFound) && app == cli.DefaultApp && from == "" {
			if _, made := cl.CreateApp(cmd.Context(), app); made != nil && !releases.AppExists(made) {
				return made
			}
			v, err = cl.CreateVolume(cmd.Context(), app, spec)
		}
		if err != nil {
			return err
		}
		return printVolume(c, v, "is created")
	}
	return cmd
}

// volumeOf finds a volume of the app by id or name.
func volumeOf(c *cli.Env, cmd *cobra.Command, ref string) (*client.Client, machine.Volume, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, machine.Volume{}, err
	}
	app := c.AppOrDefault()
	vs, err := cl.Volumes(cmd.Context(), app)
	if err != nil {
		return nil, machine.Volume{}, err
	}
	v, err := machines.PickVolume(vs, ref, app)
	return cl, v, err
}

func cmdVolumeExtend(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "extend VOLUME GB",
		Short:   "Make a volume larger",
		Example: "  souk volumes extend data 5",
		Args:    cli.Args(2, 2, "a volume and its new size in GB"),
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		gb, err := strconv.Atoi(given[1])
		if err != nil {
			return cli.Usagef("a size is a whole number of GB, not %q", given[1])
		}
		cl, v, err := volumeOf(c, cmd, given[0])
		if err != nil {
			return err
		}
		if v, err = cl.ExtendVolume(cmd.Context(), c.AppOrDefault(), v.ID, gb); err != nil {
			return err
		}
		return printVolume(c, v, fmt.Sprintf("has %d GB", v.SizeGB))
	}
	return cmd
}

func cmdVolumeSnapshot(c *cli.Env) *cobra.Command {
	var list bool
	cmd := &cobra.Command{Use: "snapshot VOLUME", Short: "Copy a volume as it is now, or list the copies",
		Example: "  souk volumes snapshot data\n  souk volumes snapshot --list data", Args: cli.Args(1, 1, "a volume")}
	cmd.Flags().BoolVar(&list, "list", false, "list the snapshots instead")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, v, err := volumeOf(c, cmd, given[0])
		if err != nil {
			return err
		}
		if !list {
			if err := cl.SnapshotVolume(cmd.Context(), c.AppOrDefault(), v.ID); err != nil {
				return err
			}
			c.Say("copied", v.ID, "volume %s (%s) is copied", v.Name, v.ID)
			return nil
		}
		ss, err := cl.Snapshots(cmd.Context(), c.AppOrDefault(), v.ID)
		if err != nil {
			return err
		}
		if c.JSON {
			cli.JSONList(c, ss)
			return nil
		}
		var rows [][]cli.Cell
		for _, s := range ss {
			rows = append(rows,
				cli.Cells(s.ID, s.Status, fmt.Sprintf("%d MB", s.Size>>20), s.CreatedAt.Format("2006-01-02 15:04:05")))
		}
		c.Table(cli.Columns("ID", "STATUS", "SIZE", "CREATED"), rows)
		return nil
	}
	return cmd
}

func cmdVolumeDestroy(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "destroy VOLUME",
		Short:   "Destroy a volume, all that is on it, and its snapshots",
		Example: "  souk volumes destroy data --yes",
		Args:    cli.Args(1, 1, "a volume"),
	}
	yes := cmd.Flags().Bool("yes", false, "really: what is on it and its snapshots are lost")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, v, err := volumeOf(c, cmd, given[0])
		if err != nil {
			return err
		}
		free := v.AttachedMachine == nil || *v.AttachedMachine == ""
		if !*yes && free { // an attached one is refused anyway
			return cli.Usagef("volume %s (%s, %d GB) and %s would be lost; say --yes", v.Name, v.ID, v.SizeGB,
				cli.NumberOf(len(v.Snapshots), "snapshot", "snapshots"))
		}
		if _, err := cl.DestroyVolume(cmd.Context(), c.AppOrDefault(), v.ID); err != nil {
			return err
		}
		c.Say("destroyed", v.ID, "volume %s (%s) is destroyed", v.Name, v.ID)
		return nil
	}
	return cmd
}

func printVolume(c *cli.Env, v machine.Volume, what string) error {
	if c.JSON {
		c.JSONLine(c.Out, v)
		return nil
	}
	fmt.Fprintf(c.Out, "volume %s (%s) %s, on worker %s\n", v.Name, v.ID, what, v.Worker)
	for _, w := range v.Warnings {
		fmt.Fprintln(c.Err, "warning:", w)
	}
	return nil
}

func printVolumes(c *cli.Env, vs []machine.Volume) {
	if c.JSON {
		cli.JSONList(c, vs)
		return
	}
	var rows [][]cli.Cell
	for _, v := range vs {
		attached := "-"
		if v.AttachedMachine != nil && *v.AttachedMachine != "" {
			attached = *v.AttachedMachine
		}
		size := fmt.Sprintf("%d GB", v.SizeGB)
		if v.SizeHeld {
			size += " held"
		}
		rows = append(rows, cli.Cells(v.ID, v.Name, v.App, v.State, size, string(v.Worker), attached,
			strconv.Itoa(len(v.Snapshots))))
	}
	c.Table([]cli.Column{cli.Drop("ID", 3), cli.Keep("NAME").Cut(8), cli.Drop("APP", 6).Cut(6),
		cli.Drop("STATE", 4), cli.Keep("SIZE"), cli.Drop("WORKER", 5).Cut(6), cli.Drop("ATTACHED TO", 2).Cut(8),
		cli.Drop("SNAPSHOTS", 1)}, rows)
}
