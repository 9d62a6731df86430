package container

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image"
)

// warmups is the number of starts that are not counted.
const warmups = 3

// measureCreate makes and starts one container after another, in turns with the floors.
func (r *rig) measureCreate(ctx context.Context) ([]Row, error) {
	var ours, floors, clones, runs []time.Duration
	for i := range r.o.N + warmups {
		create, start, err := r.bare.createStart(ctx)
		if err != nil {
			return nil, err
		}
		run, err := r.bare.timeRun(ctx)
		if err != nil {
			return nil, err
		}
		clone, err := r.bare.timeClone()
		if err != nil {
			return nil, err
		}
		m, took, err := r.launchContainer(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.destroyMachine(ctx, m.ID); err != nil {
			return nil, err
		}
		if i >= warmups {
			ours, floors = append(ours, took), append(floors, create+start)
			clones, runs = append(clones, clone), append(runs, run)
		}
	}
	return []Row{
		timedRow("create_start", ours, floors, "<= 1.15 of runc create and start",
			func(p50, floor float64) bool { return p50 <= 1.15*floor }),
		timedRow("clone_exec", clones, nil, "floor: the kernel alone, to exec", nil),
		timedRow("runc_run", runs, nil, "floor: runc run of true, to its end", nil),
	}, nil
}

// measureStart starts a stopped machine for which a container has been made ahead, again and again, each in turn with
// the start of a container that runc has created.
func (r *rig) measureStart(ctx context.Context) ([]Row, error) {
	m, _, err := r.launchContainer(ctx)
	if err != nil {
		return nil, err
	}
	var ours, floors []time.Duration
	for i := range r.o.N + warmups {
		if _, err := r.Client.Stop(ctx, live.App, m.ID, "", client.StopOptions{Signal: "SIGKILL"}); err != nil {
			return nil, err
		}
		if err := r.Client.Wait(ctx, live.App, m.ID, time.Minute, machine.Stopped); err != nil {
			return nil, err
		}
		if err := awaitReady(ctx); err != nil {
			return nil, err
		}
		_, floor, err := r.bare.createStart(ctx)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		if _, err := r.Client.Start(ctx, live.App, m.ID, ""); err != nil {
			return nil, err
		}
		if took := time.Since(begin); i >= warmups {
			ours, floors = append(ours, took), append(floors, floor)
		}
		if err := r.mustBe(ctx, m.ID, machine.Started); err != nil {
			return nil, err
		}
	}
	return []Row{timedRow("start_prepared", ours, floors, "<= runc start + 5 ms",
		func(p50, floor float64) bool { return p50 <= floor+5 })}, r.destroyMachine(ctx, m.ID)
}

// awaitReady waits until a prepared container exists: its process executes the runtime's init.
func awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, f := range all {
			if c, err := os.ReadFile(f); err == nil && bytes.HasSuffix(c, []byte("runc\x00init\x00")) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fault.New(fault.Timeout, fault.CodeReady, "no container was made ahead of the start within a minute")
		}
	}
}

func (r *rig) mustBe(ctx context.Context, id string, want machine.State) error {
	now, err := r.Client.Machine(ctx, live.App, id)
	if err == nil && now.State != want {
		err = fault.New(fault.Internal, fault.CodeBench,
			"machine %s is %s, not %s%s", id, now.State, want, now.Because())
	}
	return err
}

// measureThaw suspends a machine and starts it again. The floor is a read of the machine.
func (r *rig) measureThaw(ctx context.Context) ([]Row, error) {
	m, _, err := r.launchContainer(ctx)
	if err != nil {
		return nil, err
	}
	var ours, floors []time.Duration
	for i := range r.o.N + warmups {
		if _, err := r.Client.Suspend(ctx, live.App, m.ID, ""); err != nil {
			return nil, err
		}
		if err := r.Client.Wait(ctx, live.App, m.ID, time.Minute, machine.Suspended); err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := r.mustBe(ctx, m.ID, machine.Suspended); err != nil {
			return nil, err
		}
		floor := time.Since(begin)
		begin = time.Now()
		if _, err := r.Client.Start(ctx, live.App, m.ID, ""); err != nil {
			return nil, err
		}
		if took := time.Since(begin); i >= warmups {
			ours, floors = append(ours, took), append(floors, floor)
		}
	}
	return []Row{timedRow("thaw", ours, floors, "<= 10 ms", func(p50, _ float64) bool { return p50 <= 10 })},
		r.destroyMachine(ctx, m.ID)
}

// measureResize changes the CPU and memory of a container that runs, there and back. The floor is a read of the
// machine.
func (r *rig) measureResize(ctx context.Context) ([]Row, error) {
	m, _, err := r.launchContainer(ctx)
	if err != nil {
		return nil, err
	}
	shapes := [2]machine.Resize{{CPUMilli: 500, MemoryMB: 128}, {CPUMilli: 1000, MemoryMB: 64}}
	var ours, floors []time.Duration
	for i := range r.o.N + warmups {
		begin := time.Now()
		if err := r.mustBe(ctx, m.ID, machine.Started); err != nil {
			return nil, err
		}
		floor := time.Since(begin)
		begin = time.Now()
		if _, err := r.Client.Resize(ctx, live.App, m.ID, shapes[i%2], ""); err != nil {
			return nil, err
		}
		if took := time.Since(begin); i >= warmups {
			ours, floors = append(ours, took), append(floors, floor)
		}
	}
	return []Row{timedRow("resize", ours, floors, "<= 5 ms", func(p50, _ float64) bool { return p50 <= 5 })},
		r.destroyMachine(ctx, m.ID)
}

// Sizes of the unpacked layer.
const (
	unpackFiles = 10_000
	unpackBytes = 4 << 10
	unpackTurns = 3
)

// measureUnpack has a store unpack a layer of small files, in turns with tar.
func (r *rig) measureUnpack(ctx context.Context) ([]Row, error) {
	var ours, floors []time.Duration
	for i := range unpackTurns {
		raw, err := filesLayer(rand.Reader, unpackFiles, unpackBytes)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(r.dir, fmt.Sprintf("unpack-%d", i))
		took, floor, err := unpackOnce(ctx, dir, raw)
		if err != nil {
			return nil, err
		}
		if err := os.RemoveAll(dir); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "the unpacked layer cannot be removed")
		}
		ours, floors = append(ours, took), append(floors, floor)
	}
	return []Row{timedRow("unpack", ours, floors, ">= 0.7 of the speed of tar x",
		func(p50, floor float64) bool { return floor/p50 >= 0.7 })}, nil
}

// unpackOnce returns how long a store and tar take to unpack a layer of an OCI image, compressed.
func unpackOnce(ctx context.Context, dir string, raw []byte) (ours, floor time.Duration, err error) {
	to := filepath.Join(dir, "tar")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, 0, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "the benchmark's directory cannot be written")
	}
	packed, err := compressLayer(raw)
	if err != nil {
		return 0, 0, err
	}
	file := filepath.Join(dir, "layer.tar.gz")
	if err := os.WriteFile(file, packed, 0o600); err != nil {
		return 0, 0, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "the layer cannot be written")
	}
	reg, err := serveImage(name, raw, packed)
	if err != nil {
		return 0, 0, err
	}
	defer reg.close()
	s, err := image.Open(image.Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	i, err := s.Pull(ctx, reg.name, image.PullOptions{})
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if out, err := exec.CommandContext(ctx, "tar", "-xzf", file, "-C", to).CombinedOutput(); err != nil {
		return 0, 0, fault.Wrap(err, fault.Internal, fault.CodeBench, "tar: %s", out)
	}
	floor = time.Since(begin)
	begin = time.Now()
	_, err = s.Unpack(ctx, i.Digest)
	return time.Since(begin), floor, err
}

// measurePull measures starts of containers on a quiet host, and then during the pull of a large image.
func (r *rig) measurePull(ctx context.Context) ([]Row, error) {
	raw, err := filesLayer(rand.Reader, r.o.PullMB, 1<<20)
	if err != nil {
		return nil, err
	}
	packed, err := compressLayer(raw)
	if err != nil {
		return nil, err
	}
	reg, err := serveImage("souk-bench/large:1", raw, packed)
	if err != nil {
		return nil, err
	}
	defer reg.close()
	quiet, err := r.startMany(ctx, r.o.N)
	if err != nil {
		return nil, err
	}
	var pulled error
	var pull sync.WaitGroup
	begin := time.Now()
	var took time.Duration
	pull.Go(func() {
		_, pulled = r.Client.PullImage(ctx, r.worker, reg.name, nil)
		took = time.Since(begin)
	})
	beside, err := r.startMany(ctx, r.o.N)
	pull.Wait()
	if err == nil {
		err = pulled
	}
	if err != nil {
		return nil, err
	}
	row := timedRow("start_beside_pull", beside, quiet, "<= 1.2 of starts without", func(p50, floor float64) bool {
		return p50 <= 1.2*floor
	})
	row.Value, row.Unit = new(took.Seconds()), fmt.Sprintf("s for %d MB", r.o.PullMB)
	return []Row{row}, nil
}

// startMany makes n containers one after the other.
func (r *rig) startMany(ctx context.Context, n int) (all []time.Duration, err error) {
	for range n {
		m, took, err := r.launchContainer(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.destroyMachine(ctx, m.ID); err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// measureMemory returns the additional memory of souk and its reaper per container, with many containers.
func (r *rig) measureMemory(ctx context.Context) ([]Row, error) {
	if _, err := r.startMany(ctx, 20); err != nil { // warm up: memory of the first ones stays allocated
		return nil, err
	}
	before, err := r.proportionalMemory()
	if err != nil {
		return nil, err
	}
	for range r.o.Many {
		if _, _, err := r.launchContainer(ctx); err != nil {
			return nil, err
		}
	}
	after, err := r.proportionalMemory()
	if err != nil {
		return nil, err
	}
	each := float64(after-before) / 1000 / float64(r.o.Many)
	return []Row{{Name: "memory", N: r.o.Many, Value: &each, Unit: "KB a container", Want: "< 150 KB",
		Met: new(each < 150)}}, live.DestroyAll(ctx, r.Client, live.App)
}

// proportionalMemory adds up the memory (PSS) of souk's processes, in bytes.
func (r *rig) proportionalMemory() (sum int64, err error) {
	for _, pid := range r.Processes() {
		one, _, err := live.FieldOf(pid, "smaps_rollup", "Pss")
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}
