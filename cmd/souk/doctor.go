package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

func (c *cli) cmdDoctor() *cobra.Command {
	var dirFlag string
	var inv invariantFlags
	var whole bool
	cmd := &cobra.Command{Use: "doctor", Short: "Tell what this host can do for souk and what it lacks",
		Long: `Examine this host (kernel, cgroups, limits, disk) and, when a souk answers, what its workers find on theirs.
It works without a souk that runs. The exit code is 0 also when something is lacking: souk does without it, and the
advice tells what is lost.

With --invariants the whole cluster is checked instead, through the souk that answers: what every member says of itself,
and the processes of this host, against what souk promises (the invariants of the design, by their numbers). It changes
nothing. The exit code is 1 when one does not hold. Each line says what was looked at, and what was found.

With --cluster it is what the members of the cluster have and lack, as the souk that answers finds it: who can be heard,
what is known of them and how old that is, drift between runtime, journal and registry, clocks, certificates, cordons.
The exit code is 65 when something needs attention.`,
		Example: "  souk doctor\n  souk doctor --json | jq '.[].findings[] | select(.ok|not)'\n  souk doctor --invariants", Args: args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dirFlag, "dir", "", "the directory souk dev keeps its state in")
	inv.add(cmd.Flags())
	cmd.Flags().BoolVar(&whole, "cluster", false, "examine the cluster instead: drift, clocks, certificates, staleness, cordons; the exit code says whether all is well")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if inv.on || inv.history != "" {
			return c.doInvariants(cmd.Context(), &inv)
		}
		if whole {
			return c.doHealth(cmd.Context())
		}
		dir, err := c.devDir(dirFlag)
		if err != nil {
			return err
		}
		here := api.Examination{Worker: "this host", Findings: c.examineHost(cmd.Context(), dir)}
		all := []api.Examination{here}
		cl, err := c.client()
		var ex []api.Examination
		if err == nil {
			ex, err = cl.Doctor(cmd.Context())
		}
		if err != nil {
			here.Findings = append(here.Findings, cluster.Finding{Name: "server", Have: "none answers", Advice: err.Error()})
		} else {
			here.Findings = append(here.Findings, cluster.Finding{Name: "server", OK: true, Have: fmt.Sprintf("%d workers at %s", len(ex), cl.Addr())})
		}
		all[0] = here
		all = append(all, ex...)
		if c.json {
			jsonList(c, all)
			return nil
		}
		for _, e := range all {
			c.printFindings(e)
		}
		return nil
	}
	return cmd
}

func (c *cli) printFindings(e api.Examination) {
	fmt.Fprintf(c.out, "%s\n", e.Worker)
	for _, f := range e.Findings {
		mark := "ok  "
		if !f.OK {
			mark = "LACK"
		}
		fmt.Fprintf(c.out, "  %s %-12s %s\n", mark, f.Name, f.Have)
		if f.Advice != "" {
			fmt.Fprintf(c.out, "       %-12s %s\n", "", f.Advice)
		}
	}
}

// examineHost finds out what can be found out without a server.
func (c *cli) examineHost(ctx context.Context, dir string) []cluster.Finding {
	found := []cluster.Finding{
		{Name: "system", OK: goruntime.GOOS == "linux", Have: kernelText() + ", " + goruntime.GOARCH, Advice: unless(goruntime.GOOS == "linux", "souk runs machines on Linux only")},
		{Name: "cpus", OK: true, Have: fmt.Sprintf("%d", goruntime.NumCPU())},
		memoryFinding(), openFilesFinding(), diskFinding(dir), fsyncFinding(dir),
	}
	found = append(found, examineRuntime(ctx, dir)...)
	return found
}

// unless gives the advice when ok is not.
func unless(ok bool, advice string) string {
	if ok {
		return ""
	}
	return advice
}

func kernelText() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return goruntime.GOOS
	}
	var b strings.Builder
	for _, ch := range u.Release {
		if ch == 0 {
			break
		}
		b.WriteByte(byte(ch))
	}
	return "Linux " + b.String()
}

// memInfo gives fields of /proc/meminfo in MiB.
func memInfo(field string) (int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, is := strings.CutPrefix(line, field+":"); is {
			var kb int64
			if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%d kB", &kb); err != nil {
				return 0, err
			}
			return kb >> 10, nil
		}
	}
	return 0, os.ErrNotExist
}

func memoryFinding() cluster.Finding {
	f := cluster.Finding{Name: "memory"}
	total, err := memInfo("MemTotal")
	free, err2 := memInfo("MemAvailable")
	if err != nil || err2 != nil {
		f.Have, f.Advice = "unknown", "/proc/meminfo cannot be read; give souk dev --memory"
		return f
	}
	f.OK = free >= 256
	f.Have = fmt.Sprintf("%d MiB, %d MiB available", total, free)
	f.Advice = unless(f.OK, "the smallest machine is 256 MB")
	return f
}

func openFilesFinding() cluster.Finding {
	const enough = 4096
	f := cluster.Finding{Name: "open files"}
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		f.Have = err.Error()
		return f
	}
	f.OK, f.Have = l.Max >= enough, fmt.Sprintf("at most %d", l.Max)
	f.Advice = unless(f.OK, fmt.Sprintf("some machines use several; for a thousand machines let it be %d or more (ulimit -Hn)", enough))
	return f
}

// above gives the directory itself, or the nearest one above it that exists.
func above(dir string) string {
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// freeDisk gives the free space of the file system that holds dir, in MiB.
func freeDisk(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(above(dir), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize >> 20, nil
}

func diskFinding(dir string) cluster.Finding {
	f := cluster.Finding{Name: "disk"}
	mib, err := freeDisk(dir)
	if err != nil {
		f.Have = err.Error()
		return f
	}
	f.OK, f.Have = mib >= 1024, fmt.Sprintf("%d MiB free at %s", mib, above(dir))
	f.Advice = unless(f.OK, "machines and their output need room; free some, or give souk dev another --dir")
	return f
}

// fsyncFinding measures what every durable answer costs here.
func fsyncFinding(dir string) cluster.Finding {
	f := cluster.Finding{Name: "fsync"}
	file, err := os.CreateTemp(above(dir), ".souk-doctor-*")
	if err != nil {
		f.Have, f.Advice = err.Error(), "souk must be able to write there"
		return f
	}
	defer os.Remove(file.Name())
	defer file.Close()
	took := make([]time.Duration, 0, 32)
	for range cap(took) {
		begin := time.Now()
		_, err := file.Write(make([]byte, 512))
		if err == nil {
			err = file.Sync()
		}
		if err != nil {
			f.Have = err.Error()
			return f
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	p50 := took[len(took)/2]
	f.OK, f.Have = p50 < 20*time.Millisecond, fmt.Sprintf("%s, median of %d", ms(p50), len(took))
	f.Advice = unless(f.OK, "each answer waits for the disk once; an SSD makes launches much faster")
	return f
}

func (c *cli) cmdWorkers() *cobra.Command {
	return &cobra.Command{Use: "workers", Short: "List workers: what they have and what is free", Example: "  souk workers\n  souk workers --json",
		Args: args(0, 0, "no argument"), RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			w, err := cl.Workers(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				c.jsonLine(c.out, w)
				return nil
			}
			var rows [][]cell
			for _, r := range w.Workers {
				rows = append(rows, cells(string(r.Worker), string(r.Region), string(r.State), fmt.Sprint(r.Machines), r.Free().String(), r.Capacity.String()))
			}
			c.table([]string{"WORKER", "REGION", "STATE", "MACHINES", "FREE", "CAPACITY"}, rows)
			for _, u := range w.Unreachable {
				fmt.Fprintf(c.err, "worker %s does not answer: %s\n", u.Worker, u.Error)
			}
			return nil
		}}
}

func (c *cli) cmdVersion() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version of this program, and of the server when one answers",
		Example: "  souk version\n  souk version --json", Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version string          `json:"version"`
				Go      string          `json:"go"`
				Server  *api.ServerInfo `json:"server"`
			}{Version: version(), Go: goruntime.Version()}
			if cl, err := c.client(); err == nil {
				if sv, err := cl.Version(cmd.Context()); err == nil {
					v.Server = &sv
				} else if !fault.Is(err, fault.Unavailable) {
					return err
				}
			}
			if c.json {
				c.jsonLine(c.out, v)
				return nil
			}
			fmt.Fprintf(c.out, "souk %s (%s)\n", v.Version, v.Go)
			if v.Server != nil {
				fmt.Fprintf(c.out, "server %s (%s)\n", v.Server.Version, v.Server.Go)
			}
			return nil
		}}
}
