package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
)

// devFlags are the flags of souk dev.
type devFlags struct {
	dir     string
	addr    string
	workers int
	region  string
	cpus    int
	memory  int64
	offer   offerFlags
	verbose bool

	decisionMB int64
}

// Bounds of souk dev.
const (
	defaultAddr = "127.0.0.1:4280"
	maxWorkers  = 64

	shutdownGrace = 1 * time.Second // for requests under way once souk is to end
)

func (c *cli) cmdDev() *cobra.Command {
	o := new(devFlags)
	cmd := &cobra.Command{Use: "dev", Short: "Run a worker, the API and a token on this host, in one process",
		Long: `Run one worker or several, the API and a token on loopback, in one process. All state is under one directory.

When it ends (^C) the machines go on running. The next souk dev of the same directory takes them up again, with the
same ids and the same processes, whether this one ended, crashed or was killed.

souk itself uses at most half of the cores, but one for each worker, and leaves the others to the machines. Set
GOMAXPROCS in its environment to have another number.

The token is made once and kept in DIR/token; the address is in DIR/addr. Clients on this host find both by themselves
when DIR is the default one.`,
		Example: "  souk dev\n  souk dev --workers 3\n  souk dev --dir /tmp/try --addr 127.0.0.1:5000",
		Args:    args(0, 0, "no argument")}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "", "where the state is kept (default: souk/dev below $XDG_STATE_HOME or ~/.local/state)")
	f.StringVar(&o.addr, "addr", defaultAddr, "HOST:PORT to listen on; loopback only; port 0 takes any that is free")
	f.IntVar(&o.workers, "workers", 0, "how many workers share this host, each with its own journal (default: as many as before, else 1)")
	f.StringVar(&o.region, "region", "local", "the region of the workers")
	f.IntVar(&o.cpus, "cpus", 0, "how many CPUs to offer (default: those this host has)")
	f.Int64Var(&o.memory, "memory", 0, "how many MiB of memory to offer (default: what this host has)")
	o.offer.add(f)
	f.Int64Var(&o.decisionMB, "decision-log-mb", decisionlog.DefaultMaxBytes>>20, "how many MiB of decisions to keep for souk explain; 0 keeps none")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what is done, not only what goes wrong")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.doDev(cmd.Context(), o) }
	return cmd
}

func (c *cli) doDev(ctx context.Context, o *devFlags) error {
	begin := time.Now()
	if err := checkListen(o.addr); err != nil {
		return err
	}
	dir, err := c.devDir(o.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Invalid, "dir", "the directory %s cannot be made", dir)
	}
	lock, err := lockDir(dir)
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
	ln, err := net.Listen("tcp", o.addr)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "listen", "%s cannot be listened on; give another --addr, port 0 takes any that is free", o.addr)
	}
	if c.getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(ownCores(runtime.GOMAXPROCS(0), len(plans)))
	}
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: level}))
	n, err := node.New(ctx, node.Options{Dir: dir, Token: token, Region: cluster.Region(o.region), Workers: plans, Log: log,
		DecisionMB: o.decisionMB, Version: version(), Grace: shutdownGrace})
	if err != nil {
		ln.Close()
		return err
	}
	addrFile := filepath.Join(dir, "addr")
	if err := writeWhole(addrFile, ln.Addr().String()+"\n", 0o644); err != nil {
		return errors.Join(err, n.Close())
	}
	c.printReady(ctx, dir, ln.Addr().String(), n, plans, time.Since(begin), o.dir == "")
	err = n.Run(ctx, ln)
	os.Remove(addrFile) // an address where nobody listens would only mislead
	left := n.Running(context.WithoutCancel(ctx))
	err = errors.Join(err, n.Close())
	c.printStopped(left, o)
	return err
}

// ownCores gives how many cores souk itself may use at once: half of those there are, but one for each worker. The others are
// the machines'. It also is what costs least: a launch is a chain of short turns (connection, worker, journal, reaper), and
// with a core free Go wakes a thread there for almost each of them.
func ownCores(cores, workers int) int { return min(cores, max(cores/2, workers)) }

// checkListen lets only loopback addresses pass: the API starts programs, and its token would travel in clear.
func checkListen(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usagef("--addr is HOST:PORT, as %s, not %q", defaultAddr, addr)
	}
	if !isLoopback(host) {
		return usagef("souk dev listens on loopback only, not on %q: the API has no TLS yet, so its token would travel in clear; use %s and a tunnel", host, defaultAddr)
	}
	return nil
}

// lockDir makes this process the only one with the directory. The lock ends with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "dir", "the directory %s cannot be written to", dir)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := readLine(f.Name()) // only for the sentence
		f.Close()
		return nil, fault.New(fault.Conflict, "dir_in_use", "a souk dev (process %s) already runs in %s; end it first, or give this one another --dir and --addr", holder, dir)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		f.Close()
		return nil, fault.Wrap(err, fault.Unavailable, "dir", "the lock of %s cannot be written", dir)
	}
	return f, nil
}

// tokenOf gives the directory's token and makes it once.
func tokenOf(dir string) (string, error) {
	file := filepath.Join(dir, "token")
	token, err := readLine(file)
	switch {
	case err == nil && len(token) >= 16:
		return token, nil
	case err == nil:
		return "", fault.New(fault.Invalid, "token", "%s holds no token; remove it and a new one is made", file)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fault.Wrap(err, fault.Invalid, "token", "%s cannot be read", file)
	}
	raw := make([]byte, 32)
	rand.Read(raw) // never fails: the program is ended instead
	token = "souk_" + base64.RawURLEncoding.EncodeToString(raw)
	return token, writeWhole(file, token+"\n", 0o600)
}

// writeWhole writes a file so that it is there whole or not at all, also after a crash.
func writeWhole(file, text string, mode fs.FileMode) error {
	tmp := file + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "write", "%s cannot be written", file)
	}
	return nil
}

// ready is what dev prints in --json.
type ready struct {
	Addr      string   `json:"addr"`
	Dir       string   `json:"dir"`
	TokenFile string   `json:"token_file"`
	Workers   []string `json:"workers"`
	Machines  int      `json:"machines"` // running, taken up from before
	PID       int      `json:"pid"`
}

func (c *cli) printReady(ctx context.Context, dir, addr string, n *node.Node, plans []node.Worker, took time.Duration, home bool) {
	running := n.Running(ctx)
	if c.json {
		r := ready{Addr: addr, Dir: dir, TokenFile: filepath.Join(dir, "token"), Machines: running, PID: os.Getpid()}
		for _, p := range plans {
			r.Workers = append(r.Workers, string(p.ID))
		}
		c.jsonLine(c.out, r)
		return
	}
	fmt.Fprintf(c.out, "souk is ready on %s after %s; its state is in %s\n", addr, ms(took), dir)
	for _, p := range plans {
		fmt.Fprintf(c.out, "  worker %s offers %s\n", p.ID, p.Capacity)
	}
	if running > 0 {
		fmt.Fprintf(c.out, "  machines from before that go on: %d\n", running)
	}
	export := fmt.Sprintf("  export SOUK_ADDR=%s\n  export SOUK_TOKEN=$(cat %s)\n", addr, filepath.Join(dir, "token"))
	if home { // where souk's own clients look by themselves
		fmt.Fprintf(c.out, "Other clients of the Machines API want:\n%s", export)
		export = ""
	}
	next := "  souk ps\n"
	if running == 0 {
		next = "  souk run --name hello -- /bin/sh -c 'while true; do date; sleep 1; done'\n  souk logs -f hello\n"
	}
	fmt.Fprintf(c.out, "Now, in another terminal:\n%s%s", export, next)
	if _, err := exec.LookPath("souk"); err != nil {
		fmt.Fprint(c.out, "(souk is not on your PATH: \"go install ./cmd/souk\" puts it there, or write \"go run ./cmd/souk\" for it)\n")
	}
}

func (c *cli) printStopped(left int, o *devFlags) {
	if c.json {
		return
	}
	again := "souk dev"
	if o.dir != "" {
		again += " --dir " + o.dir
	}
	if left == 0 {
		fmt.Fprintln(c.out, "souk has ended; no machine runs")
		return
	}
	fmt.Fprintf(c.out, "souk has ended; machines that keep running: %d\n  to take them up again: %s\n  to end them: the same, and then souk stop $(souk ps -q)\n",
		left, again)
}

// planWorkers says which workers this host has and what each may offer. A worker that was here before stays, since
// its machines are its own: there are never fewer than before.
func planWorkers(dir string, o *devFlags) ([]node.Worker, error) {
	base := filepath.Join(dir, "workers")
	before, err := filepath.Glob(filepath.Join(base, "*", "id"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "dir", "%s cannot be read", base)
	}
	count := o.workers
	switch {
	case count == 0:
		count = max(len(before), 1)
	case count < 0 || count > maxWorkers:
		return nil, usagef("--workers is a number from 1 to %d, not %d", maxWorkers, count)
	case count < len(before):
		return nil, fault.New(fault.Conflict, "fewer_workers", "%s has %d workers from before, whose machines are their own; say --workers %d or more, or give another --dir",
			dir, len(before), len(before))
	}
	all, err := capacityOf(dir, o)
	if err != nil {
		return nil, err
	}
	plans := make([]node.Worker, count)
	for i := range plans {
		p := node.Worker{Dir: filepath.Join(base, fmt.Sprint(i+1)), Capacity: all.Scale(1, int64(count))}
		if p.Offer, err = o.offer.of(i+1, &p.Capacity); err != nil {
			return nil, err
		}
		if p.ID, err = workerID(p.Dir, i+1); err != nil {
			return nil, err
		}
		plans[i] = p
	}
	return plans, nil
}

// workerID gives the id kept in the worker's directory, and makes it once.
func workerID(dir string, number int) (cluster.WorkerID, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.Wrap(err, fault.Invalid, "dir", "the directory %s cannot be made", dir)
	}
	file := filepath.Join(dir, "id")
	id, err := readLine(file)
	if err == nil && id != "" {
		return cluster.WorkerID(id), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(err, fault.Invalid, "dir", "%s cannot be read", file)
	}
	id = fmt.Sprintf("w%d-%s", number, strings.ToLower(rand.Text()[:6]))
	return cluster.WorkerID(id), writeWhole(file, id+"\n", 0o644)
}
