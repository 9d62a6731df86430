package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/image/imagetest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process/cgroup/cgrouptest"
)

// The size of the test of resizes over kill -9. SOUK_TEST_RESIZES asks for more of them.
const (
	resizes         = 60
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

// TestResizesOverKill9 resizes four machines at random, all at once, and kills souk at random moments. While nobody is
// there the kernel holds the machines to no more together than the worker has. Afterwards each has a shape that was
// asked for, the newest that was answered or one that was not, its cgroup holds it to that, and the ledger has the
// sum. None was restarted.
func TestResizesOverKill9(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Run("processes", func(t *testing.T) { resizesOverKill9(t, "souk/host") })
	t.Run("containers", func(t *testing.T) {
		if err := oci.Able(oci.DefaultEngine); err != nil && os.Getenv("CI") == "true" {
			t.Fatal(err)
		} else if err != nil {
			t.Skip(err)
		}
		resizesOverKill9(t, "busybox:1")
	})
}

func resizesOverKill9(t *testing.T, image string) {
	total := resizes
	if n, err := strconv.Atoi(os.Getenv("SOUK_TEST_RESIZES")); err == nil {
		total = n
	}
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
	span := 20 * time.Millisecond
	sum, kill := resizer{}, 0
	for ; sum.granted+sum.refused+sum.unsure < total; kill++ {
		moment := time.Duration(rng.Int64N(int64(span)))
		took := resizeRound(t, own, all, moment)
		span = max(took+took/4, 10*time.Millisecond)
		held := cluster.Resources{}
		for _, x := range all {
			held = held.Add(x.heldTo(t))
		}
		if !held.Fits(room) {
			t.Errorf("kill %d: the kernel lets the machines have %v, of %v", kill, held, room)
		}
		if err := own.Start(); err != nil {
			t.Fatalf("kill %d: souk does not start again: %v\n%s", kill, err, log.String())
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
	t.Logf("%d kills: %d resizes were granted, %d refused, %d not answered", kill, sum.granted, sum.refused, sum.unsure)
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

// resizeRound resizes all machines side by side until souk is killed, and returns how long they took.
func resizeRound(t *testing.T, own *live.Souk, all []*resizer, moment time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	killed := make(chan struct{})
	begin := time.Now()
	time.AfterFunc(moment, func() {
		own.Kill()
		close(killed)
	})
	errs := make(chan error, len(all))
	cl := own.Client
	for _, x := range all {
		go func() { errs <- x.run(ctx, cl, resizesPerKill/resizedMachines+1) }()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	took := time.Since(begin)
	<-killed
	return took
}

// checkResized waits until what was under way has ended, and holds machines, cgroups and ledger against each other.
func checkResized(t *testing.T, cl *client.Client, all []*resizer, kill int) {
	t.Helper()
	for _, x := range all { // a signal has its turn when the resize that was under way has ended
		if err := cl.Signal(t.Context(), x.m.App, x.m.ID, "", "SIGWINCH"); err != nil {
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
	deadline := time.Now().Add(30 * time.Second)
	why := settled()
	for tick := time.NewTicker(5 * time.Millisecond); why != "" && time.Now().Before(deadline); why = settled() {
		<-tick.C
	}
	if why != "" {
		t.Errorf("kill %d: %s", kill, why)
	}
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
