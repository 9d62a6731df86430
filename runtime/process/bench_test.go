package process_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// lasting runs until it is killed and costs little.
var lasting = []string{"/bin/sleep", "100000"}

func limited(id string, attempt uint64, argv ...string) runtime.Spec {
	s := runtime.Spec{Machine: id, Attempt: attempt, Argv: argv, SwapMB: -1,
		Env: []string{"PATH=/usr/bin:/bin", "FLY_MACHINE_ID=" + id}}
	s.Resources.CPU, s.Resources.Memory = 1000, 64
	return s
}

type times []time.Duration

func (t times) at(p float64) time.Duration {
	slices.Sort(t)
	return t[min(len(t)-1, int(float64(len(t))*p))]
}

// BenchmarkStartAgainstFork times Start through the reaper and a bare fork+exec in turns, and prints both: of new machines, which
// run on, and of one machine again and again, where the kernel is still busy with the group of the life before. "as" is
// with a user of the host, its umask and ten soft limits, "files" also with a directory and files of that user.
func BenchmarkStartAgainstFork(b *testing.B) {
	for _, mode := range []string{"new", "again", "without cgroups", "new as", "again as", "new as files",
		"again as files"} {
		b.Run(mode, func(b *testing.B) {
			given := func(id string, attempt uint64) runtime.Spec { return limited(id, attempt, lasting...) }
			fresh := strings.HasPrefix(mode, "new")
			if strings.Contains(mode, " as") {
				asRoot(b)
				pub := public(b)
				given = func(id string, attempt uint64) runtime.Spec {
					s := limited(id, attempt, lasting...)
					s.As = submitter(0o027, allLimits()...)
					if strings.HasSuffix(mode, " files") {
						s.Dir, s.Stdio = pub, runtime.Stdio{In: "/dev/null", Out: id + ".out", Err: id + ".err"}
					}
					return s
				}
			}
			o := options(b.TempDir() + "/process")
			o.NoCgroups = mode == "without cgroups"
			b.Cleanup(func() { stopReaper(b, o) })
			r := reopen(b, o)
			ctx := context.Background()
			var ours, bare times
			id, attempt := "m", uint64(0)
			for b.Loop() {
				attempt++
				if fresh {
					id = fmt.Sprintf("m%d", attempt)
				}
				if err := r.Prepare(ctx, limited(id, 0)); err != nil {
					b.Fatal(err)
				}
				begin := time.Now()
				if _, err := r.Start(ctx, given(id, attempt)); err != nil {
					b.Fatal(err)
				}
				ours = append(ours, time.Since(begin))
				if !fresh { // those go on until the end: what they cost others is part of it
					if err := r.Kill(ctx, id); err != nil {
						b.Fatal(err)
					}
					if err := r.Ack(ctx, id, attempt); err != nil {
						b.Fatal(err)
					}
				}
				cmd := exec.Command(lasting[0], lasting[1:]...)
				begin = time.Now()
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(begin))
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			report(b, ours, bare)
		})
	}
}

func report(b *testing.B, ours, bare times) {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(us(ours.at(0.5)), "start-p50-us")
	b.ReportMetric(us(ours.at(0.99)), "start-p99-us")
	b.ReportMetric(us(bare.at(0.5)), "bare-p50-us")
	b.ReportMetric(us(bare.at(0.99)), "bare-p99-us")
	b.ReportMetric(us(ours.at(0.5))/us(bare.at(0.5)), "ratio-p50")
}

// BenchmarkWholeLives runs whole lives (start to exit delivered and acknowledged), 64 at a time, against a bare
// fork+exec+wait loop of as many.
func BenchmarkWholeLives(b *testing.B) {
	o := options(b.TempDir() + "/process")
	b.Cleanup(func() { stopReaper(b, o) })
	r := reopen(b, o)
	ctx := context.Background()
	const at = 64
	run := func(n int, f func(i int)) time.Duration {
		begin := time.Now()
		var wg sync.WaitGroup
		for w := range at {
			wg.Go(func() {
				for i := w; i < n; i += at {
					f(i)
				}
			})
		}
		wg.Wait()
		return time.Since(begin)
	}
	done := make(map[string]chan struct{})
	for w := range at {
		id := fmt.Sprintf("m%d", w)
		done[id] = make(chan struct{}, 1)
		if err := r.Prepare(ctx, limited(id, 0)); err != nil {
			b.Fatal(err)
		}
	}
	go func() {
		for x := range r.Exits() {
			done[x.Machine] <- struct{}{}
		}
	}()
	n := max(b.N, at)
	b.ResetTimer()
	ours := run(n, func(i int) {
		id, attempt := fmt.Sprintf("m%d", i%at), uint64(i/at+1)
		if _, err := r.Start(ctx, limited(id, attempt, "/bin/true")); err != nil {
			b.Error(err)
			return
		}
		<-done[id]
		if err := r.Ack(ctx, id, attempt); err != nil {
			b.Error(err)
		}
	})
	b.StopTimer()
	bare := run(n, func(int) { _ = exec.Command("/bin/true").Run() })
	b.ReportMetric(float64(n)/ours.Seconds(), "lives/s")
	b.ReportMetric(float64(n)/bare.Seconds(), "bare/s")
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
}

// BenchmarkOutput takes in what a machine prints: as much as it can in large pieces, and a line at a time.
func BenchmarkOutput(b *testing.B) {
	const lines = 20000
	for name, text := range map[string]string{
		"bulk":  `yes 'a line of the usual length, as programs print them' | head -c 67108864`,
		"lines": fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; done`, lines),
	} {
		b.Run(name, func(b *testing.B) {
			o := options(b.TempDir() + "/process")
			b.Cleanup(func() { stopReaper(b, o) })
			r := reopen(b, o)
			pid := reaperPID(b, o.Dir)
			before, attempt := cpuOf(b, pid), uint64(0)
			for b.Loop() {
				attempt++
				s := script("m", attempt, text)
				s.Fresh, s.Resources.CPU = true, 8000
				if _, err := r.Start(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				if x := next(b, r, "m"); x.Code != 0 {
					b.Fatalf("%+v", x)
				}
				if err := r.Ack(b.Context(), "m", attempt); err != nil {
					b.Fatal(err)
				}
			}
			cpu := float64((cpuOf(b, pid) - before).Microseconds()) / float64(b.N)
			if name == "bulk" {
				b.SetBytes(64 << 20)
				b.ReportMetric(cpu/64, "reaper-us/MiB")
			} else {
				b.ReportMetric(cpu/lines, "reaper-us/line")
			}
		})
	}
}

// cpuOf gives the CPU time that a process has used.
func cpuOf(b *testing.B, pid int) time.Duration {
	s, err := proc.Read(pid)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(s.UTime+s.STime) * time.Second / proc.TicksPerSecond
}
