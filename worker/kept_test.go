package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// ofService grants a replica that prints lines and goes on.
func ofService(id string, lines ...string) lifecycle.Grant {
	g := grant(id, "sh", "-c", "echo "+strings.Join(lines, "; echo ")+"; sleep 1000")
	g.Replica = &machine.Replica{Group: "web", Epoch: 1, Spec: "s", Release: "r1"}
	return g
}

// texts reads a machine's output.
func (b *bench) texts(id string, q machine.LogQuery) (out []string, cursors []string, err error) {
	err = b.Logs(b.t.Context(), "app", id, q, func(l machine.LogLine) error {
		out, cursors = append(out, l.Text), append(cursors, l.Cursor)
		return nil
	})
	return out, cursors, err
}

func (b *bench) destroyed(g lifecycle.Grant) {
	b.t.Helper()
	if _, err := b.Grant(b.t.Context(), g); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.Do(b.t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: g.Request.Machine,
		Kill: true}); err != nil {
		b.t.Fatal(err)
	}
}

// TestOutputOfADestroyedMachineIsReadable: the last output of a machine that was destroyed is read as that of a living one, also
// after a restart of souk, and by who followed it.
func TestOutputOfADestroyedMachineIsReadable(t *testing.T) {
	j, rt, dir := mem.New(), fake.New(fake.Options{}), t.TempDir()
	at := func(o *worker.Options) { o.Dir = dir }
	b := open(t, j, rt, at)
	if _, err := b.Grant(t.Context(), ofService(id(1), "one", "two", "three")); err != nil {
		t.Fatal(err)
	}
	followed := make(chan []string, 1)
	begun := make(chan struct{}, 3)
	go func() {
		var got []string
		_ = b.Logs(t.Context(), "app", id(1), machine.LogQuery{Follow: true}, func(l machine.LogLine) error {
			got = append(got, l.Text)
			begun <- struct{}{}
			return nil
		})
		followed <- got
	}()
	<-begun
	if _, err := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: id(1),
		Kill: true}); err != nil {
		t.Fatal(err)
	}
	all := []string{"one", "two", "three"}
	if got := <-followed; !slices.Equal(got, all) {
		t.Errorf("who followed has %q", got)
	}
	check := func(b *bench) {
		t.Helper()
		got, cursors, err := b.texts(id(1), machine.LogQuery{})
		if err != nil || !slices.Equal(got, all) {
			t.Fatalf("%q, %v", got, err)
		}
		two := 2
		for _, q := range []machine.LogQuery{{Tail: &two}, {Tail: &two, Follow: true}, {Cursor: cursors[0]}} {
			if got, _, err := b.texts(id(1), q); err != nil || !slices.Equal(got, all[1:]) {
				t.Errorf("%+v: %q, %v", q, got, err)
			}
		}
		err = b.Logs(t.Context(), "other", id(1), machine.LogQuery{}, func(machine.LogLine) error { return nil })
		if fault.CodeOf(err) != "machine_not_found" {
			t.Errorf("another app's machine: %v", err)
		}
	}
	check(b)
	_ = b.stop()
	check(open(t, j, rt, at))
}

// TestKeptOutputIsBounded: the output of so many machines is kept, the newest, of services apart from others; of each
// the newest lines.
func TestKeptOutputIsBounded(t *testing.T) {
	j, rt, dir := mem.New(), fake.New(fake.Options{}), t.TempDir()
	b := open(t, j, rt, func(o *worker.Options) { o.Dir = dir })
	b.destroyed(ofService(id(1), "kept"))
	for n := range worker.KeptOutputs + 3 {
		b.destroyed(grant(id(2+n), "echo", fmt.Sprint("line ", n)))
	}
	for n := range worker.KeptOutputs + 3 {
		_, _, err := b.texts(id(2+n), machine.LogQuery{})
		if gone := fault.CodeOf(err) == "output_gone"; gone != (n < 3) {
			t.Errorf("machine %d: %v", n, err)
		}
	}
	long := strings.Repeat("x", 1000)
	b.destroyed(ofService(id(1000), slices.Repeat([]string{long}, 100)...))
	b.destroyed(ofService(id(1001), slices.Repeat([]string{"s"}, 2000)...))
	b.destroyed(grant(id(1002), "true"))
	for _, want := range []struct {
		id    string
		lines int
	}{{id(1), 1}, {id(1000), 64 << 10 / 1001}, {id(1001), 1000}} {
		if got, _, err := b.texts(want.id, machine.LogQuery{}); err != nil || len(got) != want.lines {
			t.Errorf("%s has %d lines, %v; not %d", want.id, len(got), err, want.lines)
		}
	}
	if _, _, err := b.texts(id(1002), machine.LogQuery{}); fault.CodeOf(err) != "output_gone" {
		t.Errorf("a machine that printed nothing: %v", err)
	}
	_ = b.stop()
	for _, odd := range []string{"0123456789abcd.jsonl", id(1) + ".jsonl.part"} { // of nobody, and of a souk that died
		if err := os.WriteFile(filepath.Join(dir, "outputs", odd), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b = open(t, j, rt, func(o *worker.Options) { o.Dir = dir })
	b.destroyed(grant(id(2000), "echo", "newest"))
	es, err := os.ReadDir(filepath.Join(dir, "outputs"))
	if err != nil || len(es) != worker.KeptOutputs+3 {
		t.Errorf("%d files are kept, %v; not %d", len(es), err, worker.KeptOutputs+3)
	}
	if _, _, err := b.texts(id(5), machine.LogQuery{}); fault.CodeOf(err) != "output_gone" {
		t.Errorf("the oldest of others is kept: %v", err)
	}
}

// TestKeptOutputExpiresAfterADay: after a day nothing is kept.
func TestKeptOutputExpiresAfterADay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, mem.New(), fake.New(fake.Options{}), func(o *worker.Options) { o.Dir = dir })
		b.destroyed(ofService(id(1), "x"))
		<-time.After(lifecycle.KeepDestroyed - time.Second)
		if got, _, err := b.texts(id(1), machine.LogQuery{}); err != nil || len(got) != 1 {
			t.Errorf("%q, %v", got, err)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if es, err := os.ReadDir(filepath.Join(dir, "outputs")); err != nil || len(es) != 0 {
			t.Errorf("%v, %v", es, err)
		}
		_ = b.stop()
	})
}

// TestFullDiskKeepsNoOutputOfDestroyedMachines: a machine that goes so that there is room leaves nothing.
func TestFullDiskKeepsNoOutputOfDestroyedMachines(t *testing.T) {
	dir := t.TempDir()
	full := make(chan error, 1)
	full <- nil
	b := open(t, mem.New(), fake.New(fake.Options{}), func(o *worker.Options) {
		o.Dir = dir
		o.Full = func() error { err := <-full; full <- err; return err }
	})
	if _, err := b.Grant(t.Context(), ofService(id(1), "x")); err != nil {
		t.Fatal(err)
	}
	<-full
	full <- fault.New(fault.Exhausted, "disk", "the disk is full")
	if _, err := b.Do(context.WithoutCancel(t.Context()), lifecycle.Command{Verb: lifecycle.Destroy, App: "app",
		Machine: id(1), Kill: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "outputs")); err == nil {
		t.Error("output is kept on a full disk")
	}
}

// TestMissingOutputBytesAreCounted: a reader whose position is no longer kept gets the number of missing bytes.
func TestMissingOutputBytesAreCounted(t *testing.T) {
	line := machine.LogLine{Cursor: "2:90:1000", Text: "four"} // its last byte is the thousandth
	for cursor, want := range map[string]int64{"1:50:900": 95, "1:50:995": 0, "?": 0} {
		if got := worker.Between(cursor, &line); got != want {
			t.Errorf("behind %s %d bytes are missing, not %d", cursor, got, want)
		}
	}
}
