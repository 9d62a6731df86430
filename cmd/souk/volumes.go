package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func (c *cli) cmdVolumes() *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		vs, err := cl.Volumes(cmd.Context(), c.appOrDefault())
		if err != nil {
			return err
		}
		c.printVolumes(vs)
		return nil
	}
	var spec api.NewVolume
	var size int
	create := &cobra.Command{Use: "create NAME", Short: "Make a volume", Example: "  souk volumes create data --size 1", Args: args(1, 1, "a name")}
	create.Flags().IntVar(&size, "size", 1, "in GB")
	create.Flags().StringVar(&spec.Region, "region", "", "the region (default: the server's)")
	create.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		app := c.appOrDefault()
		spec.Name = given[0]
		if size != 0 {
			spec.SizeGB = &size
		}
		v, err := cl.CreateVolume(cmd.Context(), app, spec)
		if fault.Is(err, fault.NotFound) && app == defaultApp {
			if _, made := cl.CreateApp(cmd.Context(), app); made != nil && !appTaken(made) {
				return made
			}
			v, err = cl.CreateVolume(cmd.Context(), app, spec)
		}
		if err != nil {
			return err
		}
		return c.printVolume(v, "is created")
	}
	return parent(&cobra.Command{Use: "volumes", Short: "List, make and destroy volumes",
		Long:    "A volume is a directory that outlives the machines it is attached to. It is on one worker for life.",
		Example: "  souk volumes create data --size 1\n  souk run --volume data:/data -- /opt/db\n  souk volumes",
		Args:    args(0, 0, "no argument, or one of its commands"), RunE: list},
		create, c.cmdVolumeExtend(), c.cmdVolumeSnapshot(), c.cmdVolumeDestroy())
}

// volumeOf finds a volume of the app by id or name.
func (c *cli) volumeOf(cmd *cobra.Command, ref string) (*client.Client, machine.Volume, error) {
	cl, err := c.client()
	if err != nil {
		return nil, machine.Volume{}, err
	}
	app := c.appOrDefault()
	vs, err := cl.Volumes(cmd.Context(), app)
	if err != nil {
		return nil, machine.Volume{}, err
	}
	v, err := pickVolume(vs, ref, app)
	return cl, v, err
}

func (c *cli) cmdVolumeExtend() *cobra.Command {
	cmd := &cobra.Command{Use: "extend VOLUME GB", Short: "Make a volume larger", Example: "  souk volumes extend data 5", Args: args(2, 2, "a volume and its new size in GB")}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		gb, err := strconv.Atoi(given[1])
		if err != nil {
			return usagef("a size is a whole number of GB, not %q", given[1])
		}
		cl, v, err := c.volumeOf(cmd, given[0])
		if err != nil {
			return err
		}
		if v, err = cl.ExtendVolume(cmd.Context(), c.appOrDefault(), v.ID, gb); err != nil {
			return err
		}
		return c.printVolume(v, fmt.Sprintf("has %d GB", v.SizeGB))
	}
	return cmd
}

func (c *cli) cmdVolumeSnapshot() *cobra.Command {
	var list bool
	cmd := &cobra.Command{Use: "snapshot VOLUME", Short: "Copy a volume as it is now, or list the copies",
		Example: "  souk volumes snapshot data\n  souk volumes snapshot --list data", Args: args(1, 1, "a volume")}
	cmd.Flags().BoolVar(&list, "list", false, "list the snapshots instead")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, v, err := c.volumeOf(cmd, given[0])
		if err != nil {
			return err
		}
		if !list {
			if err := cl.SnapshotVolume(cmd.Context(), c.appOrDefault(), v.ID); err != nil {
				return err
			}
			c.say(did{"copied", v.ID}, "volume %s (%s) is copied", v.Name, v.ID)
			return nil
		}
		ss, err := cl.Snapshots(cmd.Context(), c.appOrDefault(), v.ID)
		if err != nil {
			return err
		}
		if c.json {
			jsonList(c, ss)
			return nil
		}
		var rows [][]cell
		for _, s := range ss {
			rows = append(rows, cells(s.ID, s.Status, fmt.Sprintf("%d MB", s.Size>>20), s.CreatedAt.Format("2006-01-02 15:04:05")))
		}
		c.table([]string{"ID", "STATUS", "SIZE", "CREATED"}, rows)
		return nil
	}
	return cmd
}

func (c *cli) cmdVolumeDestroy() *cobra.Command {
	cmd := &cobra.Command{Use: "destroy VOLUME", Short: "Destroy a volume and all that is on it", Example: "  souk volumes destroy data", Args: args(1, 1, "a volume")}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, v, err := c.volumeOf(cmd, given[0])
		if err != nil {
			return err
		}
		if _, err := cl.DestroyVolume(cmd.Context(), c.appOrDefault(), v.ID); err != nil {
			return err
		}
		c.say(did{"destroyed", v.ID}, "volume %s (%s) is destroyed", v.Name, v.ID)
		return nil
	}
	return cmd
}

func (c *cli) printVolume(v machine.Volume, what string) error {
	if c.json {
		c.jsonLine(c.out, v)
		return nil
	}
	fmt.Fprintf(c.out, "volume %s (%s) %s, on worker %s\n", v.Name, v.ID, what, v.Worker)
	return nil
}

func (c *cli) printVolumes(vs []machine.Volume) {
	if c.json {
		jsonList(c, vs)
		return
	}
	var rows [][]cell
	for _, v := range vs {
		attached := "-"
		if v.AttachedMachine != nil && *v.AttachedMachine != "" {
			attached = *v.AttachedMachine
		}
		rows = append(rows, cells(v.ID, v.Name, v.State, fmt.Sprintf("%d GB", v.SizeGB), string(v.Worker), attached))
	}
	c.table([]string{"ID", "NAME", "STATE", "SIZE", "WORKER", "ATTACHED TO"}, rows)
}
