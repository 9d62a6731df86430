package bench

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench/container"
	"github.com/soukhq/souk/cli"
)

const benchContainerLong = `Start a souk of its own in a temporary directory, measure its containers as a client of the API sees them, and
end it. It is for root, with runc and a static busybox.

Each figure is told with its floor, which is measured in turns with it: what runc takes for the same program with the
same specification and a root that is mounted already.

  create_start       a machine created of an image that is here and answered "started": runc create and runc start
  clone_exec         no figure of souk: the kernel alone makes a process in namespaces of its own execute the program
  runc_run           no figure of souk: runc run of a program that ends at once
  start_prepared     a stopped machine started: runc start of a container that is created already
  wake_prepared      a request that wakes such a machine, to the end of its answer: the API's start of it, until its port
                     accepts
  thaw               a suspended machine started: a read of it
  resize             CPU and memory of a container that runs changed: a read of it
  unpack             a layer of 10,000 small files unpacked: tar xzf
  start_beside_pull  create_start while a large image is pulled from a registry on loopback: the same without
  memory             what souk and its reaper take (PSS) for each of many containers, themselves not counted`

func cmdBenchContainer(c *cli.Env) *cobra.Command {
	o := container.Options{}
	cmd := &cobra.Command{Use: "container", Short: "Measure containers against their OCI runtime",
		Long:    benchContainerLong,
		Example: "  souk bench container --json\n  souk bench container --only create_start,thaw --n 200",
		Args:    cli.Args(0, 0, "no argument")}
	f := cmd.Flags()
	f.IntVar(&o.N, "n", 50, "how many starts of each kind are measured")
	f.IntVar(&o.Many, "containers", 200, "how many run at once for the row memory")
	f.IntVar(&o.PullMB, "pull", 200, "how large the image is that is pulled, in MB")
	f.StringSliceVar(&o.Only, "only", nil, "only these rows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.N < 1 || o.Many < 1 || o.PullMB < 1 {
			return cli.Usagef("--n, --containers and --pull are at least 1")
		}
		if err := checkRows(o.Only, container.Rows()); err != nil {
			return err
		}
		return container.Run(cmd.Context(), o, &reporter{c: c, head: container.Head()})
	}
	return cmd
}
