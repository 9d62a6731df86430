// Package server has the commands that start a souk or prepare its start: souk dev, agent, init, token, join and ca,
// and the hidden souk reaper.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/store/decisionlog"
)

// devFlags are the flags of souk dev.
type devFlags struct {
	doorFlags
	dir     string
	workers int
	region  string
	cpus    int
	memory  cli.Size
	offer   offerFlags
	verbose bool
	images  containerFlags
	volumes volumeFlags
	proxy   proxyFlags
	removeFlags

	decisionMB int64
}

// Bounds of souk dev.
const (
	DefaultAddr = "127.0.0.1:4280"
	MaxWorkers  = 64

	shutdownGrace = 1 * time.Second // for requests under way once souk is to end
)

// Dev makes the command "souk dev".
func Dev(c *cli.Env) *cobra.Command {
	o := new(devFlags)
	cmd := &cobra.Command{Use: "dev", Short: "Run a worker, the API and a token on this host, in one process",
		Long: `Run one worker or several, the API and a token on loopback, in one process. All state is under one directory.

When it ends (^C) the machines go on running. The next souk dev of the same directory finds them and goes on with
them, with the same ids and the same processes, whether this one ended, crashed or was killed.

souk itself uses at most half of the cores, but one for each worker, and leaves the others to the machines. Set
GOMAXPROCS in its environment to have another number.

With --remove, and the other flags as before, it ends what is there for good: machines, tasks, volumes and reapers.

The token is made once and kept in DIR/token; the address is in DIR/addr. The commands of this host use the socket
DIR/souk.sock, which they find by themselves when DIR is the default one (SOUK_ADDR=unix:DIR/souk.sock where not).`,
		Example: "  souk dev\n  souk dev --workers 3\n  souk dev --dir /tmp/try --addr 127.0.0.1:5000",
		Args:    cli.Args(0, 0, "no argument")}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "",
		"where the state is kept (default: souk/dev below $XDG_STATE_HOME or ~/.local/state)")
	o.doorFlags.add(f)
	f.IntVar(&o.workers, "workers", 0,
		"how many workers share this host, each with its own journal (default: as many as before, else 1)")
	f.StringVar(&o.region, "region", "local", "the region of the workers")
	f.IntVar(&o.cpus, "cpus", 0, "how many CPUs to offer (default: those this host has)")
	f.Var(&o.memory, "memory", "how much memory to offer, such as 64g (default: what this host has)")
	o.offer.add(f)
	o.images.add(f)
	o.volumes.add(f)
	o.proxy.add(f)
	o.removeFlags.add(f)
	f.Int64Var(&o.decisionMB, "decision-log-mb", decisionlog.DefaultMaxBytes>>20,
		"how many MiB of decisions to keep for souk explain; 0 keeps none")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what is done, not only what goes wrong")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return doDev(cmd.Context(), c, o) }
	return cmd
}

func doDev(ctx context.Context, c *cli.Env, o *devFlags) error {
	begin := time.Now()
	dir, lock, err := o.claim(c)
	if err != nil {
		return err
	}
	defer lock.Close()
	token, err := tokenOf(dir)
	if err != nil {
		return err
	}
	plans, err := planWorkers(dir, o)
	if err != nil {
		return err
	}
	containers, err := o.images.plan(dir)
	if err != nil {
		return err
	}
	if o.remove {
		return o.doRemove(ctx, c, node.Options{Dir: dir, Token: token, Region: cluster.Region(o.region), Workers: plans,
			Log: o.log(c), Containers: containers.how, Build: cli.ThisBuild()})
	}
	sized, err := o.volumes.sized()
	if err != nil {
		return err
	}
	warnMemory(c, o.memory)
	if c.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(ownCores(runtime.GOMAXPROCS(0), len(plans)))
	}
	log := o.log(c)
	ctx, next, err := followUpgrades(ctx, log)
	if err != nil {
		return err
	}
	doors, err := openDoors(dir, &o.doorFlags, hostsHere(""), next.doors.Listen, log)
	if err != nil {
		return err
	}
	requests, err := o.proxy.plan(next.doors.Listen)
	if err != nil {
		return errors.Join(err, doors.close())
	}
	n, err := node.New(
		ctx,
		node.Options{Dir: dir, Token: token, Region: cluster.Region(o.region), Workers: plans, Log: log,
			AllowRoot: o.offer.allowRoot, UnixUsers: doors.users, Containers: containers.how, Sized: sized,
			Proxy: requests.how, Backfill: backfill.Policy(o.offer.backfill),
			DecisionMB: o.decisionMB, Build: cli.ThisBuild(), Grace: shutdownGrace, Reserve: true,
			Devices: o.offer.found(ctx, log)},
	)
	if err != nil {
		return errors.Join(err, doors.close(), requests.close())
	}
	if err := doors.tell(dir); err != nil {
		return errors.Join(err, doors.close(), n.Close())
	}
	next.serves()
	printReady(ctx, c, dir, doors, n, plans, containers, &requests, time.Since(begin), o.dir == "")
	calm(ctx, c, log)
	err = n.Run(ctx, doors.listeners...)
	doors.shut(dir)
	left := next.leave(ctx, n, log)
	err = errors.Join(err, n.Close())
	return next.done(err, func() {
		printStopped(c, left, "souk dev"+dirFlag(o.dir), "the same, and then souk stop $(souk ps -q)")
	})
}

// claim checks the flags, and locks the directory for this process.
func (o *devFlags) claim(c *cli.Env) (dir string, lock *os.File, err error) {
	if err := cmp.Or(o.doorFlags.check(), o.removeFlags.check()); err != nil {
		return "", nil, err
	}
	if dir, err = c.DevDir(o.dir); err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "token")); o.remove && err != nil {
		return "", nil, fault.New(fault.NotFound, cli.CodeNoSouk,
			"there is no souk directory at %s, so no souk runs there", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s cannot be made", dir)
	}
	lock, err = claimDir(dir, lockDir)
	return dir, lock, err
}

// log returns the server's logger.
func (o *devFlags) log(c *cli.Env) *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: level}))
}

// ownCores returns how many cores souk itself may use at once: half of those there are, but one for each worker. The
// others are for machines. It is also cheapest: a launch is a chain of short steps (connection, worker, journal,
// reaper), and with a free core Go would wake a thread for almost each step.
func ownCores(cores, workers int) int { return min(cores, max(cores/2, workers)) }

// ready is what dev prints in --json.
type ready struct {
	Addr      string   `json:"addr"`
	Dir       string   `json:"dir"`
	TokenFile string   `json:"token_file"`
	Workers   []string `json:"workers"`
	Machines  int      `json:"machines"` // running machines of an earlier run
	PID       int      `json:"pid"`
}

func printReady(ctx context.Context, c *cli.Env, dir string, d *doors, n *node.Node, plans []node.Worker,
	containers containerPlan, requests *proxyDoors, took time.Duration, home bool) {
	running := n.Running(ctx)
	if c.JSON {
		r := ready{Addr: d.addr, Dir: dir, TokenFile: filepath.Join(dir, "token"), Machines: running, PID: os.Getpid()}
		for _, p := range plans {
			r.Workers = append(r.Workers, string(p.ID))
		}
		c.JSONLine(c.Out, r)
		return
	}
	fmt.Fprintf(c.Out, "souk is ready on %s after %s; its state is in %s\n", d.addr, cli.Millis(took), dir)
	for _, p := range plans {
		fmt.Fprintf(c.Out, "  worker %s offers %s\n", p.ID, p.Capacity)
	}
	printUsers(c)
	containers.say(c)
	requests.say(c)
	if running > 0 {
		fmt.Fprintf(c.Out, "  machines from before that go on: %d\n", running)
	}
	d.printRoot(c, dir)
	d.printUsersDoor(c, dir)
	fmt.Fprintf(c.Out,
		"Other clients of the Machines API want:\n  export SOUK_ADDR=%s\n  export SOUK_TOKEN=$(cat %s)\n",
		d.addr, filepath.Join(dir, "token"))
	export := ""
	if !home { // clients do not find this directory by themselves
		export = fmt.Sprintf("  export SOUK_ADDR=unix:%s\n", filepath.Join(dir, cli.SocketFile))
	}
	next := "  souk ps\n"
	if running == 0 {
		next = "  souk run --name hello -- /bin/sh -c 'while true; do date; sleep 1; done'\n  souk logs -f hello\n"
	}
	fmt.Fprintf(c.Out, "Now, in another terminal:\n%s%s", export, next)
	if _, err := exec.LookPath("souk"); err != nil {
		fmt.Fprint(c.Out,
			"(souk is not on your PATH: \"go install ./cmd/souk\" puts it there, or write \"go run ./cmd/souk\" for "+
				"it)\n")
	}
}

// printUsers prints what machines cannot have if souk is not root.
func printUsers(c *cli.Env) {
	if uid := os.Geteuid(); uid != 0 {
		fmt.Fprintf(c.Out, "  machines run as user %d, as souk does, and can do what it can; volumes and files are "+
			"below their directories (\"souk doctor\" tells what root would give)\n", uid)
	}
}

// printStopped prints what keeps running, which command continues with it, and how to end it.
func printStopped(c *cli.Env, left int, again, end string) {
	if c.JSON {
		return
	}
	if left == 0 {
		fmt.Fprintln(c.Out, "souk has ended; no machine runs")
		return
	}
	fmt.Fprintf(c.Out, "souk has ended; machines that keep running: %d\n  to go on with them: %s\n  to end them: %s\n",
		left, again, end)
}
