package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// codeGrows says that something in souk grows with time.
const codeGrows fault.Code = "grows"

// SoakOptions say how long the soak runs, and how often resource use is sampled.
type SoakOptions struct {
	For         time.Duration
	Every       time.Duration
	Concurrency int
}

// SoakRow is how one sampled value changed after the first third of the time.
type SoakRow struct {
	Name   string  `json:"name"` // e.g. "agent rss", "worker/journal bytes"
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`           // after the warm-up
	Most   float64 `json:"most"`             // over the whole time
	Slope  float64 `json:"percent_a_minute"` // median slope between all pairs of samples, in percent of the median
	Grown  float64 `json:"grown"`            // slope times the sampled time, in the row's unit
	Noise  float64 `json:"noise"`            // growth up to this is ignored
	Met    bool    `json:"met"`
}

// soakLimit is the slope beyond which something grows, in percent of its median a minute.
const soakLimit = 0.1

// Text returns the row as it is printed for people.
func (r SoakRow) Text() string {
	text := fmt.Sprintf("%-44s %14.0f %14.0f %10.3f %12.0f %s", r.Name, r.Median, r.Most, r.Slope, r.Grown, r.Unit)
	if !r.Met {
		text += "  GROWS"
	}
	return text
}

// SoakHead is the line above the rows of souk bench soak.
func SoakHead() string {
	return fmt.Sprintf("%-44s %14s %14s %10s %12s", "WHAT", "MEDIAN", "MOST", "%/MIN", "GROWN")
}

// SoakDone is the summary of a soak.
type SoakDone struct {
	Rounds  int64   `json:"rounds"` // rounds of all kinds of work
	Minutes float64 `json:"minutes"`
	Looks   int     `json:"looks"`
	Grows   int     `json:"grows"` // rows that grow
}

// Text returns the row as it is printed for people.
func (d SoakDone) Text() string {
	return fmt.Sprintf("%d rounds of work in %.0f minutes, looked at %d times: %d things grow", d.Rounds, d.Minutes,
		d.Looks, d.Grows)
}

// Soak makes and removes machines, jobs, commands, leases, secrets and apps at its own agent, and fails if the agent's
// use grows over time: memory, descriptors, threads, goroutines, file sizes or the number of files.
func Soak(ctx context.Context, o SoakOptions, to Reporter) error {
	agent, dir, end, err := roomyAgent(ctx, to, "--decision-log-mb", "1")
	if err != nil {
		return err
	}
	defer end()
	s := &soak{o: o, dir: dir, agent: agent, seen: map[string][]look{}}
	done := to.Working("working for %v, and looking every %v", o.For, o.Every)
	err = s.runSoak(ctx)
	done()
	if err != nil {
		return wrapFailure(err, "work was refused")
	}
	rows := s.usageRows()
	grows := 0
	for _, r := range rows {
		if to.Row(r); !r.Met {
			grows++
		}
	}
	to.Row(SoakDone{s.rounds.Load(), o.For.Minutes(), s.looks, grows})
	if grows > 0 {
		return fault.New(fault.Internal, codeGrows,
			"%d of the measured values grow by more than %g %% a minute", grows, soakLimit)
	}
	return nil
}

// soak is an agent under a soak.
type soak struct {
	o      SoakOptions
	dir    string
	agent  *live.Agent
	rests  sync.RWMutex // read-locked during a round of work, locked while sampling
	rounds atomic.Int64
	looks  int
	seen   map[string][]look
}

// look is one sample.
type look struct {
	at    time.Duration
	value float64
}

func (s *soak) runSoak(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.For)
	defer cancel()
	g, working := errgroup.WithContext(ctx)
	for n := range s.o.Concurrency {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for working.Err() == nil {
				s.rests.RLock()
				err := s.soakRound(working, n, rng)
				s.rests.RUnlock()
				if err != nil && working.Err() == nil {
					return err
				}
				s.rounds.Add(1)
			}
			return nil
		})
	}
	g.Go(func() error {
		begin := time.Now()
		for wait.For(working, s.o.Every) == nil {
			if err := s.readUsage(working, time.Since(begin)); err != nil && working.Err() == nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// soakRound makes and removes one of each thing that could leave something behind.
func (s *soak) soakRound(ctx context.Context, n int, rng *rand.Rand) error {
	cl := s.agent.Client
	m, err := cl.Launch(ctx, live.App, live.LaunchOf(live.Stays(), false), client.LaunchOptions{})
	if err != nil {
		return err
	}
	var said bytes.Buffer
	_, err = cl.Exec(ctx, live.App, m.ID, client.Command{Argv: []string{"/bin/echo", "here"}, Stdout: &said})
	if err == nil && rng.IntN(4) == 0 {
		l, errL := cl.TakeLease(ctx, live.App, m.ID, "", time.Minute)
		err = errL
		if err == nil {
			err = cl.ReleaseLease(ctx, live.App, m.ID, l.Nonce)
		}
	}
	if err == nil && rng.IntN(4) == 0 {
		_, err = cl.Stop(ctx, live.App, m.ID, "", client.StopOptions{Timeout: time.Second})
		if err == nil {
			_, err = cl.Start(ctx, live.App, m.ID, "")
		}
	}
	_, errD := cl.Destroy(ctx, live.App, m.ID, "", true)
	if err = errors.Join(err, errD); err != nil {
		return err
	}
	if rng.IntN(8) == 0 {
		return s.appAndJob(ctx, fmt.Sprintf("soak-%d", n))
	}
	return nil
}

// appAndJob makes an app with a secret, runs an array in it, and deletes it.
func (s *soak) appAndJob(ctx context.Context, app string) error {
	cl := s.agent.Client
	if _, err := cl.CreateApp(ctx, app); err != nil {
		return err
	}
	value := "of a soak"
	err := cl.SetSecrets(ctx, app, map[string]*string{"S": &value})
	if err == nil {
		var j jobs.Job
		j, err = cl.SubmitJob(ctx, "", jobs.Spec{App: app, Command: live.Ends(), First: 1, Last: 8, MemoryMB: 16})
		for err == nil && !j.State.Final() {
			j, err = cl.WaitJob(ctx, j.ID, jobs.MaxTasks, time.Minute)
		}
	}
	return errors.Join(err, cl.DestroyApp(ctx, app))
}

// oneOfMany matches the parts of a path that name a single machine, task or job.
var oneOfMany = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[0-9a-f]{14}|[0-9A-HJKMNP-TV-Z]{26}|[0-9]+`)
})

// readUsage samples everything that may grow, while no round is under way: the number of current machines depends on
// the host's load and would add noise.
func (s *soak) readUsage(ctx context.Context, at time.Duration) error {
	s.rests.Lock()
	defer s.rests.Unlock()
	now := map[string]float64{}
	for _, pid := range append(live.ReapersBelow(s.dir), s.agent.PID()) {
		who := "reaper"
		if pid == s.agent.PID() {
			who = "agent"
		}
		err := lookAtProcess(now, who, pid)
		if who == "reaper" && errors.Is(err, fs.ErrNotExist) {
			continue // a reaper without machines may end
		}
		if err != nil {
			return err
		}
	}
	counted, err := s.agent.Counters(ctx, "go_goroutines")
	if err != nil {
		return err
	}
	now["agent goroutines, number"] = counted["go_goroutines"]
	if err := s.lookAtFiles(now); err != nil {
		return err
	}
	s.looks++
	for name := range s.seen {
		if _, there := now[name]; !there {
			now[name] = 0
		}
	}
	for name, v := range now {
		s.seen[name] = append(s.seen[name], look{at, v})
	}
	return nil
}

// lookAtProcess adds the samples of one process.
func lookAtProcess(now map[string]float64, who string, pid int) error {
	for what, field := range map[string]string{"rss": "VmRSS", "anon": "RssAnon"} {
		b, _, err := live.FieldOf(pid, "status", field)
		if err != nil {
			return err
		}
		now[who+" "+what+", bytes"] = float64(b)
	}
	for what, in := range map[string]string{"descriptors": "fd", "threads": "task"} {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, in))
		if err != nil {
			return err
		}
		now[who+" "+what+", number"] = float64(len(list))
	}
	return nil
}

// lookAtFiles adds the sizes of files and the number of entries of directories, those of one kind together.
func (s *soak) lookAtFiles(now map[string]float64) error {
	return filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the file has gone meanwhile
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		kind := oneOfMany().ReplaceAllString(rel, "*")
		if parent := filepath.Dir(kind); path != s.dir {
			now[parent+"/ entries, number"]++
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			now[kind+", bytes"] += float64(info.Size())
		}
		return nil
	})
}

// usageRows returns for each sampled value whether it grows.
func (s *soak) usageRows() (rows []SoakRow) {
	for _, name := range slices.Sorted(maps.Keys(s.seen)) {
		rows = append(rows, soakRow(name, s.seen[name], s.o.For/3))
	}
	return rows
}

// soakRow judges one series by its samples after the warm-up. The slope is that of Theil and Sen (Sen 1968, Estimates
// of the regression coefficient based on Kendall's tau): the median of the slopes between all pairs, which is robust
// against sawtooth patterns and single outliers.
func soakRow(name string, seen []look, warmUp time.Duration) SoakRow {
	at := strings.LastIndex(name, ", ")
	what, unit := name[:at], name[at+2:]
	r := SoakRow{Name: what, Unit: unit, Noise: 2, Met: true}
	if unit == "bytes" {
		r.Noise = 256 << 10
	}
	var values, slopes []float64
	var behind []look
	for _, l := range seen {
		r.Most = max(r.Most, l.value)
		if l.at >= warmUp {
			behind, values = append(behind, l), append(values, l.value)
		}
	}
	for i, a := range behind {
		for _, b := range behind[i+1:] {
			slopes = append(slopes, (b.value-a.value)/(b.at-a.at).Minutes())
		}
	}
	if len(slopes) == 0 {
		return r
	}
	slices.Sort(values)
	slices.Sort(slopes)
	r.Median = values[len(values)/2]
	slope := slopes[len(slopes)/2]
	r.Grown = slope * (behind[len(behind)-1].at - behind[0].at).Minutes()
	if r.Median > 0 {
		r.Slope = 100 * slope / r.Median
	}
	r.Met = r.Slope < soakLimit || r.Grown <= r.Noise
	return r
}
