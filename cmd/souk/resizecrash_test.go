package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/reaper/cgroup/cgrouptest"
)

// The size of the test of resizes over kill -9.
const (
	resizesPerKill  = 10
	resizedMachines = 4
)

// resizeRoom is the worker's: its machines cannot all have the most that is asked for.
func resizeRoom() cluster.Resources { return cluster.Resources{CPU: 4000, Memory: 1024} }

// resizer resizes one machine again and again, and knows what it may be by now.
type resizer struct {
	m   *machine.Machine
	pid int
	rng *rand.Rand

	may                      []cluster.Resources // by the answers, and by those that were lost
	granted, refused, unsure int
}

// run resizes so often, or until souk is killed.
func (x *resizer) run(ctx context.Context, cl *client.Client, n int) error {
	for range n {
		to := machine.Resize{CPUMilli: 10 * (1 + x.rng.IntN(200)), MemoryMB: 8 + x.rng.IntN(500)}
		_, err := cl.Resize(ctx, x.m.App, x.m.ID, to, "")
		want := cluster.Resources{CPU: int64(to.CPUMilli), Memory: int64(to.MemoryMB)}
		switch {
		case err == nil:
			x.may = []cluster.Resources{want}
			x.granted++
		case lost(err):
			x.may = append(x.may, want)
			x.unsure++
			return nil
		case strings.Contains(err.Error(), "could not reserve resource"):
			x.refused++
		default:
			return err
		}
	}
	return nil
}

// TestLongResizesOverKill9NeverOverGrant resizes four machines at random, all at once, and kills souk, its reaper or both at random
// moments. At no time the kernel lets the machines have more together than the worker has: the ledger grows before
// their limits do, and shrinks behind them. Afterwards each has a shape that was asked for, the newest that was
// answered or one that was not, its cgroup holds it to that, and the ledger has the sum. None was restarted.
func TestLongResizesOverKill9NeverOverGrant(t *testing.T) {
	t.Parallel()
	allResizesOverKill9(t, 300)
}

// TestResizesOverKill9NeverOverGrant resizes less often.
func TestResizesOverKill9NeverOverGrant(t *testing.T) {
	t.Parallel()
	allResizesOverKill9(t, 40)
}

func allResizesOverKill9(t *testing.T, total int) {
	t.Run("processes", func(t *testing.T) { resizesOverKill9(t, "souk/host", total) })
	t.Run("containers", func(t *testing.T) {
		if err := oci.Able(oci.DefaultEngine); err != nil && os.Getenv("CI") == "true" {
			t.Fatal(err)
		} else if err != nil {
			t.Skip(err)
		}
		resizesOverKill9(t, "busybox:1", total)
	})
}

func resizesOverKill9(t *testing.T, image string, total int) {
	var log syncBuffer
	room := resizeRoom()
	own := &live.Souk{Exe: soukExe(t), State: filepath.Join(t.TempDir(), "state"), Stderr: &log,
		Args: []string{"--cpus", fmt.Sprint(room.CPU / 1000), "--memory", fmt.Sprint(room.Memory)}}
	if err := own.Start(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	defer own.End()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	if image != "souk/host" {
		ws, err := own.Client.Workers(t.Context())
		if err == nil {
			_, err = own.Client.LoadImages(t.Context(), string(ws.Workers[0].Worker), "",
				bytes.NewReader(imagetest.Busybox(t).DockerArchive(t, image)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := begun(t, own.Client, rng, image)
	watch := newResizeWatch(t, all, room)
	span := 20 * time.Millisecond
	sum, kill := resizer{}, 0
	for ; sum.granted+sum.refused+sum.unsure < total; kill++ {
		who := killed(rng.IntN(3))
		took := resizeRound(t, own, all, watch, who, time.Duration(rng.Int64N(int64(span))))
		span = max(took+took/4, 10*time.Millisecond)
		if own.Cmd == nil {
			watch.look(t)
			if err := watch.until(t, 1, own.Start)[0]; err != nil {
				t.Fatalf("kill %d, of %s: souk does not start again: %v\n%s", kill, who, err, log.String())
			}
		}
		checkResized(t, own.Client, all, kill)
		if t.Failed() {
			t.Fatalf("souk said:\n%s", log.String())
		}
		sum = resizer{}
		for _, x := range all {
			sum.granted, sum.refused, sum.unsure = sum.granted+x.granted, sum.refused+x.refused, sum.unsure+x.unsure
		}
	}
	t.Logf("%d kills: %d resizes were granted, %d refused, %d not answered; at %d of %d moments of looking "+
		"all limits were known, the most was %v", kill, sum.granted, sum.refused, sum.unsure, watch.known, watch.looks,
		watch.most)
	if sum.granted == 0 || sum.refused == 0 {
		t.Error("not all of what may happen has")
	}
	if err := live.DestroyAll(t.Context(), own.Client, ""); err != nil {
		t.Error(err)
	}
}

// begun makes the machines.
func begun(t *testing.T, cl *client.Client, rng *rand.Rand, image string) []*resizer {
	t.Helper()
	if _, err := cl.CreateApp(t.Context(), live.App); err != nil {
		t.Fatal(err)
	}
	all := make([]*resizer, resizedMachines)
	for i := range all {
		l := live.LaunchOf(live.Stays(), false)
		l.Config.Image, l.Config.Guest = image, &machine.Guest{CPUMilli: 500, MemoryMB: 64}
		m, err := cl.Launch(t.Context(), live.App, l, client.LaunchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ps, err := cl.Processes(t.Context(), m.App, m.ID)
		if err != nil || len(ps) == 0 { // a container has an init, too, in the same group
			t.Fatalf("processes %v: %v", ps, err)
		}
		all[i] = &resizer{m: m, pid: int(ps[0].PID), rng: rand.New(rand.NewPCG(rng.Uint64(), uint64(i))),
			may: []cluster.Resources{machine.Resources(m.Config)}}
	}
	return all
}

// killed is who is.
type killed int

const (
	killSouk killed = iota
	killReaper
	killBoth
)

func (k killed) String() string { return [...]string{"souk", "the reaper", "souk and the reaper"}[k] }

// resizeWatch holds the machines' limits to what the worker has.
type resizeWatch struct {
	room, most   cluster.Resources
	looks, known int
	files        []*os.File // of the limits: each machine's CPU, then its memory
}

func newResizeWatch(t *testing.T, all []*resizer, room cluster.Resources) *resizeWatch {
	t.Helper()
	w := &resizeWatch{room: room}
	for _, x := range all {
		c := cgrouptest.Controls{T: t, PID: x.pid}
		cpu, _ := c.Path("cpu", "cpu.cfs_quota_us", "cpu.max")
		memory, _ := c.Path("memory", "memory.limit_in_bytes", "memory.max")
		for _, path := range []string{cpu, memory} {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			w.files = append(w.files, f)
		}
	}
	return w
}

// read reads all limits: CPU in microseconds of 100 ms, memory in bytes.
func (w *resizeWatch) read() (limits [2 * resizedMachines]int64, err error) {
	var b [64]byte
	for i, f := range w.files {
		n, err := f.ReadAt(b[:], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return limits, err
		}
		number, _, _ := strings.Cut(strings.TrimSpace(string(b[:n])), " ")
		if limits[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return limits, err
		}
	}
	return limits, nil
}

// look reads all limits twice. Where none differs all were so at the moment between, and together.
func (w *resizeWatch) look(t *testing.T) {
	t.Helper()
	first, err := w.read()
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.read()
	if err != nil {
		t.Fatal(err)
	}
	if w.looks++; first != again {
		return
	}
	w.known++
	sum := cluster.Resources{}
	for i := 0; i < len(first); i += 2 {
		sum = sum.Add(cluster.Resources{CPU: first[i] / 100, Memory: first[i+1] >> 20})
	}
	if w.most = w.most.Max(sum); !sum.Fits(w.room) && !t.Failed() {
		t.Errorf("the kernel lets the machines have %v together, of %v: %v", sum, w.room, first)
	}
}

// until looks until each of n calls of do has ended, and returns what they did.
func (w *resizeWatch) until(t *testing.T, n int, do func() error) (errs []error) {
	t.Helper()
	ended := make(chan error, n)
	for range n {
		go func() { ended <- do() }()
	}
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for len(errs) < n {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-tick.C:
			w.look(t)
		}
	}
	return errs
}

// resizeRound resizes all machines side by side until who is to be is killed, and returns how long they took.
func resizeRound(t *testing.T, own *live.Souk, all []*resizer, w *resizeWatch, who killed,
	moment time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dead := make(chan struct{})
	begin := time.Now()
	time.AfterFunc(moment, func() {
		reapers := live.ReapersBelow(own.State)
		if who != killReaper {
			own.Kill()
		}
		for _, pid := range reapers {
			if who != killSouk {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with souk
			}
		}
		close(dead)
	})
	queue := make(chan *resizer, len(all))
	for _, x := range all {
		queue <- x
	}
	cl := own.Client
	for _, err := range w.until(t, len(all), func() error {
		return (<-queue).run(ctx, cl, resizesPerKill/resizedMachines+1)
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	took := time.Since(begin)
	<-dead
	return took
}

// checkResized waits until what was under way has ended, and holds machines, cgroups and ledger against each other.
func checkResized(t *testing.T, cl *client.Client, all []*resizer, kill int) {
	t.Helper()
	for _, x := range all { // a signal has its turn when the resize that was under way has ended
		if err := live.Until(t.Context(), func() bool {
			err := cl.Signal(t.Context(), x.m.App, x.m.ID, "", "SIGWINCH")
			if err != nil && !lost(err) { // the next reaper may not have been there yet
				t.Fatal(err)
			}
			return err == nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	settled := func() (why string) {
		sum := cluster.Resources{}
		for _, x := range all {
			m, err := cl.Machine(t.Context(), x.m.App, x.m.ID)
			if err != nil {
				t.Fatal(err)
			}
			has := machine.Resources(m.Config)
			sum = sum.Add(has)
			if held := x.heldTo(t); held.String() != has.String() {
				return fmt.Sprintf("machine %s has %v and is held to %v", m.ID, has, held)
			}
			if !slices.ContainsFunc(x.may, func(r cluster.Resources) bool { return r.String() == has.String() }) {
				return fmt.Sprintf("machine %s has %v, and may have %v", m.ID, has, x.may)
			}
			if m.InstanceID != x.m.InstanceID || m.State != machine.Started ||
				slices.ContainsFunc(m.Events, func(e machine.Event) bool { return e.Type == "exit" }) {
				return fmt.Sprintf("machine %s was touched: %+v", m.ID, m)
			}
		}
		ws, err := cl.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if used := ws.Workers[0].Used; used.CPU != sum.CPU || used.Memory != sum.Memory {
			return fmt.Sprintf("the ledger has %v, and the machines %v", used, sum)
		}
		return ""
	}
	waittest.See(t, fmt.Sprintf("all is settled after kill %d", kill), settled,
		func(why string) bool { return why == "" })
	for _, x := range all {
		x.may = []cluster.Resources{x.heldTo(t)}
	}
}

// heldTo returns what the kernel holds the machine to.
func (x *resizer) heldTo(t *testing.T) cluster.Resources {
	t.Helper()
	c := cgrouptest.Controls{T: t, PID: x.pid}
	return cluster.Resources{CPU: int64(c.Quota()), Memory: int64(c.Memory())}
}
