package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// looks returns two looks at workers with machines, a second apart. In it machine n used n percent of a CPU.
func looks(workers, machines int) (first, second look) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(at time.Time, second int64) look {
		l := look{sample: sample{UsageList: api.UsageList{At: at}}}
		for w := range workers {
			u := api.WorkerUsage{Worker: cluster.WorkerID(fmt.Sprintf("w%d-abcdef", w)), Member: cluster.MemberAlive,
				Record: &cluster.Record{State: cluster.Ready, Machines: machines / workers, MaxStarting: 256,
					Capacity: cluster.Resources{CPU: 4000, Memory: 8192, Disk: 10000},
					Used:     cluster.Resources{CPU: 1000, Memory: 2048}}}
			for m := w; m < machines; m += workers {
				u.Use = append(u.Use, machine.Use{Machine: fmt.Sprintf("%014x", m), App: "shop",
					Name: fmt.Sprintf("web-%d", m), CPU: second * int64(m) * 10_000, At: at.UnixMicro(),
					MemoryMiB: int64(100 - m), Processes: 1, GrantedCPU: 62, GrantedMemory: 256})
			}
			l.Workers = append(l.Workers, u)
		}
		return l
	}
	return of(at, 0), of(at.Add(time.Second), 1)
}

func names(p *picture) string {
	var out []string
	for _, m := range p.machines() {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

// TestTopSortsByUseAndObeysKeys, and what is typed changes that.
func TestTopSortsByUseAndObeysKeys(t *testing.T) {
	p := &picture{}
	first, second := looks(2, 4)
	p.see(first)
	if got := p.machines(); len(got) != 4 || got[0].cores >= 0 {
		t.Fatalf("after one look: %+v", got)
	}
	p.see(second)
	for typed, want := range map[string]string{
		"":         "web-3 web-2 web-1 web-0",
		"m":        "web-0 web-1 web-2 web-3",
		"n":        "web-0 web-1 web-2 web-3",
		"w":        "web-0 web-2 web-1 web-3",
		"c/-2\r":   "web-2",
		"c/w1-\r":  "web-3 web-1",
		"/q\x7f\r": "web-3 web-2 web-1 web-0",
		"/zz\x1b":  "web-3 web-2 web-1 web-0",
	} {
		p.sort, p.filter, p.typing = 0, "", false
		for _, k := range typed {
			if p.key([]byte(string(k))) {
				t.Errorf("%q ends it", typed)
			}
		}
		if got := names(p); got != want {
			t.Errorf("after %q: %s, want %s", typed, got, want)
		}
	}
	if !p.key([]byte("q")) || !p.key([]byte{keyInterrupt}) || p.key([]byte("\x1b[A")) {
		t.Error("q and ^C end it, and an arrow does not")
	}
	p.sort, p.filter = 0, ""
	if got := p.machines()[0]; got.cores != 0.03 {
		t.Errorf("it used 3 %% of a CPU, and %v is told", got.cores)
	}
	page := strings.Join(p.lines(80, 24), "\n")
	if !strings.Contains(page, "web-3    shop  w1-abcdef  3%") ||
		!strings.Contains(page, "97 MB   256 MB") ||
		!strings.Contains(page, "w0-abcdef  ready  25%  0%    25%     2%") {
		t.Error(page)
	}
}

// TestTopFitsAnyScreenSize: the picture fits a screen of any size, however much there is to show.
func TestTopFitsAnyScreenSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &picture{filter: rapid.SampledFrom([]string{"", "web", "nothing"}).Draw(t, "filter"),
			typing: rapid.Bool().Draw(t, "typing")}
		first, second := looks(rapid.IntRange(1, 40).Draw(t, "workers"), rapid.IntRange(0, 90).Draw(t, "machines"))
		q := queueOf(unfinished(rapid.IntRange(0, 9).Draw(t, "jobs")))
		first.Queue, second.Queue = q, q
		p.see(first)
		if rapid.Bool().Draw(t, "twice") {
			p.see(second)
		}
		width, height := rapid.IntRange(20, 200).Draw(t, "width"), rapid.IntRange(4, 60).Draw(t, "height")
		lines := p.lines(width, height)
		if len(lines) != height {
			t.Fatalf("%d lines on a screen of %d", len(lines), height)
		}
		for _, l := range lines {
			if cli.TextWidth(l) > width {
				t.Fatalf("%q is wider than %d", l, width)
			}
		}
	})
}

// unfinished returns n jobs. No task of the first one waits.
func unfinished(n int) (list []jobs.Job) {
	for i := range n {
		list = append(list, jobs.Job{ID: jobs.ID(uint64(i)), State: jobs.Running, Tasks: 2 * i, Waiting: i, Running: i,
			Submitted: time.Date(2026, 1, 2, 3, i, 5, 0, time.UTC),
			Spec:      jobs.Spec{Name: fmt.Sprintf("sweep-%d", i), Owner: jobs.Owner{By: "ada"}}})
	}
	return list
}

// TestTopShowsTheQueue: how many tasks wait and since when, and the oldest jobs, as many as the screen has room for.
func TestTopShowsTheQueue(t *testing.T) {
	p := &picture{}
	first, _ := looks(2, 4)
	first.Queue = queueOf(unfinished(9))
	p.see(first)
	for height, want := range map[int]int{8: 0, 16: 0, 20: 1, 24: 2, 60: mostQueued} {
		page := strings.Join(p.lines(80, height), "\n")
		if n := strings.Count(page, "sweep-"); n != want {
			t.Errorf("%d jobs on a screen of %d: %s", n, height, page)
		}
		says := strings.Contains(page, "9 unfinished jobs: 36 tasks waiting, 36 running, since 3m")
		if says != (height >= 16) || !strings.Contains(page, "web-") {
			t.Errorf("a screen of %d: %s", height, page)
		}
	}
	if q := queueOf(nil); q != nil {
		t.Errorf("no jobs are %+v", q)
	}
}

// TestOtherLoadExcludesMachinesOfAllLocalWorkers: what a host uses beside the machines of all of its workers; another host's machines do not count there.
func TestOtherLoadExcludesMachinesOfAllLocalWorkers(t *testing.T) {
	first, second := looks(3, 6) // each w has machines w and w+3, which use as many per cent of a CPU
	tell := func(l *look, cpu int64) {
		for i, host := range []string{"h1", "h1", "h2"} {
			l.Workers[i].Host = &machine.HostUse{Host: host, CPU: cpu, At: l.At.UnixMicro(), CPUs: 2, MemoryMiB: 1000,
				TotalMiB: 4000}
		}
	}
	tell(&first, 5_000_000)
	tell(&second, 6_080_000) // 1.08 CPUs, of which machines use 0.08 on h1
	second.Workers[2].Host.CPU = 6_070_000
	p := &picture{}
	p.see(first)
	if got := p.beside()["w0-abcdef"]; got != "-, 608 MB" {
		t.Errorf("after one look: %q", got)
	}
	p.see(second)
	for w, want := range map[cluster.WorkerID]string{"w0-abcdef": "50%, 608 MB", "w1-abcdef": "50%, 608 MB",
		"w2-abcdef": "50%, 807 MB"} {
		if got := p.beside()[w]; got != want {
			t.Errorf("%s: %q, want %q", w, got, want)
		}
	}
	second.Workers[2].Host = nil
	p.see(second)
	if got := p.beside()["w2-abcdef"]; got != "-" {
		t.Errorf("one that does not tell: %q", got)
	}
	if page := strings.Join(p.lines(140, 24), "\n"); !strings.Contains(page, "OTHER LOAD") {
		t.Error(page)
	}
}
