package worker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// listed is a worker with n machines of one app, made and not started.
func listed(t testing.TB, n int) *bench {
	t.Helper()
	b := open(t, mem.New(), fake.New(fake.Options{}), func(o *worker.Options) {
		o.Capacity = cluster.Resources{CPU: 1 << 40, Memory: 1 << 40, Disk: 1 << 40}
	})
	var wg sync.WaitGroup
	for part := range 64 {
		wg.Go(func() {
			for i := part; i < n; i += 64 {
				g := grant(id(i))
				g.Launch.Name, g.Launch.SkipLaunch = fmt.Sprintf("web-%d", i), true
				if _, err := b.Grant(t.Context(), g); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return b
}

// cpu returns what the process has used so far: wall time says nothing on a busy machine.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perOp reports the CPU time of one operation.
func perOp(b *testing.B, name string, f func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		before := cpu(b)
		for b.Loop() {
			f()
		}
		b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1e6, "cpu_ms/op")
	})
}

// BenchmarkList20000Machines lists 20,000 machines: as values, and as the JSON that a client gets, into memory. Of the latter encode
// is what encoding/json alone takes, where nothing is kept; first is the first list after a while, that has each
// encoded; and copy is the floor, which writes bytes that are there.
func BenchmarkList20000Machines(b *testing.B) {
	w := listed(b, 20_000)
	perOp(b, "machines", func() {
		if l, err := w.Machines(b.Context(), "app", false); err != nil || len(l) != 20_000 {
			b.Fatal(len(l), err)
		}
	})
	l, err := w.Machines(b.Context(), "app", false)
	if err != nil {
		b.Fatal(err)
	}
	perOp(b, "encode", func() {
		raw, err := json.Marshal(l)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(raw)))
	})
	var buf bytes.Buffer
	write := func() {
		buf.Reset()
		for _, raw := range w.Listing("app", false) {
			text, err := raw.MarshalJSON()
			if err != nil {
				b.Fatal(err)
			}
			buf.Write(text)
			buf.WriteByte(',')
		}
	}
	perOp(b, "first", func() {
		w.DropRenderings()
		write()
	})
	perOp(b, "rendered", write)
	all := bytes.Clone(buf.Bytes())
	perOp(b, "copy", func() {
		buf.Reset()
		buf.Write(all)
	})
}

// TestJSONListingMatchesValues: what is listed as JSON is what is listed as values, oldest first, before and after changes, and after
// the renderings were dropped.
func TestJSONListingMatchesValues(t *testing.T) {
	w := listed(t, 200)
	check := func(want int) {
		t.Helper()
		all, err := w.Machines(t.Context(), "app", false)
		if err != nil || len(all) != want {
			t.Fatal(len(all), err)
		}
		i := 0
		for m, raw := range w.Listing("app", false) {
			plain, err := json.Marshal(all[i])
			text, err2 := raw.MarshalJSON()
			if err := errors.Join(err, err2); err != nil || m != all[i] || !bytes.Equal(plain, text) {
				t.Fatalf("%d: %s, not %s, %v", i, text, plain, err)
			}
			if i > 0 && all[i-1].CreatedAt > m.CreatedAt {
				t.Fatalf("%d is older than the one before", i)
			}
			i++
		}
		if i != want {
			t.Fatalf("%d listed of %d", i, want)
		}
	}
	check(200)
	check(200)
	for i := range 150 {
		if _, err := w.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, App: "app",
			Machine: id(i)}); err != nil {
			t.Fatal(err)
		}
	}
	check(50)
	if _, err := w.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: id(199)}); err != nil {
		t.Fatal(err)
	}
	check(50)
	for range w.Listing("other", true) {
		t.Fatal("a machine of another app")
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w = open(t, w.j.Reopen(), w.rt)
	check(50) // in the order of their age, whatever order the journal has
}

// TestReadsDoNotWaitForCommits: while a commit and the observer take their time, what is known is read.
func TestReadsDoNotWaitForCommits(t *testing.T) {
	for _, slow := range []string{"commit", "observer"} {
		t.Run(slow, func(t *testing.T) {
			stuck, release, armed := make(chan struct{}), make(chan struct{}), atomic.Bool{}
			wait := func() {
				if armed.CompareAndSwap(true, false) {
					close(stuck)
					<-release
				}
			}
			j, seen := mem.New(), &slowObserver{wait: func() {}}
			if slow == "commit" {
				j.Hook(func([]fsm.Record) error { wait(); return nil })
			} else {
				seen.wait = wait
			}
			b := open(t, j, fake.New(fake.Options{}), func(o *worker.Options) { o.Observer = seen })
			if _, err := b.Grant(t.Context(), grant(id(1))); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Volume(t.Context(), lifecycle.VolumeCommand{Verb: "create", App: "app", Volume: "vol_1",
				Spec: machine.Volume{Name: "data", SizeGB: 1}}); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			granted := make(chan error, 1)
			go func() { _, err := b.Grant(t.Context(), grant(id(2))); granted <- err }()
			<-stuck
			read := make(chan error, 1)
			go func() { read <- b.readAll() }()
			select {
			case err := <-read:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Errorf("the reads wait for the %s", slow)
			}
			close(release)
			if err := <-granted; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// readAll reads all that is known of a machine and a volume.
func (b *bench) readAll() error {
	_, err := b.Machine(b.t.Context(), "app", id(1))
	list, err2 := b.Machines(b.t.Context(), "", true)
	versions, err3 := b.Versions(b.t.Context(), "app", id(1))
	volumes, err4 := b.Volumes(b.t.Context(), "app")
	_, err5 := b.Record(b.t.Context())
	if len(list) == 0 || len(versions) != 1 || len(volumes) != 1 {
		err = fmt.Errorf("%d machines, %d versions, %d volumes", len(list), len(versions), len(volumes))
	}
	return errors.Join(err, err2, err3, err4, err5)
}

// slowObserver waits where it is told of a machine.
type slowObserver struct{ wait func() }

func (o *slowObserver) Worker(cluster.Record)    {}
func (o *slowObserver) Machine(*machine.Machine) { o.wait() }
func (o *slowObserver) Gone(string)              {}
