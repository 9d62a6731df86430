package decisionlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/decisionlog"
	"github.com/soukhq/souk/store/disk/disktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func open(t tester, dir string, bytes int64) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(decisionlog.Options{Dir: dir, MaxBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// history makes decisions over a fleet that changes.
func history(rng *rand.Rand, n int) []*decision.Decision {
	view := decisiontest.Fleet(rng, 1+rng.IntN(12))
	out := make([]*decision.Decision, n)
	last, at := "", decisiontest.Epoch()
	for i := range out {
		r := decisiontest.Request(rng, view)
		now := decisiontest.Age(rng, view)
		b, err := decisiontest.Buy(rng, r, view, now, placement.Default())
		at = at.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
		last = machine.NextULID(last, at, rng)
		out[i] = decision.From(decision.Observation{ID: last, At: at, Why: decision.Create, Purchase: b.Purchase(),
			Err: err})
		view = now
	}
	return out
}

// verifyAll reads a log and computes each of its decisions again.
func verifyAll(t tester, dir string) (ids []string) {
	t.Helper()
	torn, err := decisionlog.Scan(dir, func(l *decision.Line, records *decision.RecordCache) error {
		if l.Decision == nil {
			return nil
		}
		ids = append(ids, l.Decision.ID)
		if wrong := decision.Verify(l.Decision, records.Get, placement.Default()); len(wrong) > 0 {
			return fmt.Errorf("%s: %v", l.Decision.ID, wrong)
		}
		return nil
	})
	if err != nil || len(torn) > 0 {
		t.Fatalf("%v %v", torn, err)
	}
	return ids
}

// TestRotatedDecisionsRecompute (invariant 9): decisions are written by one log or several after each
// other, rotated, and read back; all that is still there computes to what was recorded, and it is the newest.
func TestRotatedDecisionsRecompute(t *testing.T) {
	rotated := false
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		dir, err := os.MkdirTemp("", "decisions")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		all := history(rng, 10+rng.IntN(30))
		l := open(t, dir, decisionlog.MinMaxBytes)
		for i, d := range all {
			for !l.Append(d) {
				if err := l.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(100) == 0 {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = open(t, dir, decisionlog.MinMaxBytes)
			} else if i%7 == 0 {
				if err := l.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ids := verifyAll(t, dir)
		names, err := decisionlog.Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		rotated = rotated || len(names) > 1
		for i, id := range ids {
			if want := all[len(all)-len(ids)+i].ID; id != want {
				t.Fatalf("decision %d is %s, want %s", i, id, want)
			}
		}
		if len(ids) == 0 {
			t.Fatal("nothing is left")
		}
	})
	if !rotated {
		t.Error("no log had more than one file")
	}
}

// TestLogKeepsTheNewestWithinItsBound writes more than the bound allows, and wants the newest kept and the oldest gone.
func TestLogKeepsTheNewestWithinItsBound(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 6))
	l := open(t, dir, decisionlog.MinMaxBytes)
	view := decisiontest.Fleet(rng, 64)
	last := ""
	for i := range 2000 {
		r := decisiontest.Request(rng, view)
		b, err := decisiontest.Buy(rng, r, view, view, placement.Default())
		last = machine.NextULID(last, decisiontest.Epoch(), rng)
		d := decision.From(decision.Observation{ID: last, At: decisiontest.Epoch(), Purchase: b.Purchase(), Err: err})
		for !l.Append(d) {
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if i%500 == 0 {
			view = decisiontest.Age(rng, view)
		}
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	names, err := decisionlog.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		info, err := os.Stat(n)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	s := l.Stats()
	if s.Bytes != total || s.Files != int64(len(names)) || total > decisionlog.MinMaxBytes ||
		total < decisionlog.MinMaxBytes/2 {
		t.Errorf("%d bytes in %d files; the counters say %+v", total, len(names), s)
	}
	found, err := l.Find(t.Context(), decisionlog.Query{Limit: 1})
	if err != nil || len(found.Decisions) != 1 || found.Decisions[0].ID != last || !found.More {
		t.Errorf("%+v %v", found, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(verifyAll(t, dir)); n == 0 || n >= 2000 {
		t.Errorf("%d of 2000 decisions are left", n)
	}
}

// written gives the bytes of a log's only file, and the ids in it; ended says whether it was closed in order.
func written(t *testing.T, n, frames int, ended bool) (raw []byte, ids []string) {
	t.Helper()
	dir := t.TempDir()
	l := open(t, dir, 1<<30)
	for i, d := range history(rand.New(rand.NewPCG(3, 7)), n) {
		ids = append(ids, d.ID)
		if !l.Append(d) {
			t.Fatal("the queue is full")
		}
		if (i+1)%(n/frames) == 0 {
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := decisionlog.Files(dir)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if !ended {
		raw, err = os.ReadFile(names[0])
	}
	if e := l.Close(); e != nil {
		t.Fatal(e)
	}
	if ended {
		raw, err = os.ReadFile(names[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw, ids
}

// readBytes scans a file with these bytes.
func readBytes(t *testing.T, file string, raw []byte) (ids []string, torn []decisionlog.Torn, err error) {
	t.Helper()
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	torn, err = decisionlog.Scan(file, func(l *decision.Line, _ *decision.RecordCache) error {
		ids = append(ids, l.Decision.ID)
		return nil
	})
	return ids, torn, err
}

// TestTornEndLosesOnlyItsFrame cuts a file that was being written at many lengths.
func TestTornEndLosesOnlyItsFrame(t *testing.T) {
	raw, ids := written(t, 12, 3, false)
	file := filepath.Join(t.TempDir(), "decisions-1"+decisionlog.Suffix)
	before := 0
	for n := 0; n < len(raw); n += 29 {
		got, torn, err := readBytes(t, file, raw[:n])
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", n, len(raw), err)
		}
		if len(got) < before || len(got)%4 != 0 || len(got) == 12 || fmt.Sprint(got) != fmt.Sprint(ids[:len(got)]) {
			t.Fatalf("cut at %d of %d: %d decisions", n, len(raw), len(got))
		}
		if len(torn) > 1 || (len(torn) == 1 && torn[0].At+torn[0].Bytes != int64(n)) {
			t.Fatalf("cut at %d: %+v", n, torn)
		}
		before = len(got)
	}
	// the length was on disk, and the bytes were not
	zeros := append(bytes.Clone(raw[:len(raw)-200]), make([]byte, 200)...)
	if got, torn, err := readBytes(t, file, zeros); err != nil || len(torn) != 1 || len(got) != 8 {
		t.Fatalf("%d decisions, %v, %v", len(got), torn, err)
	}
}

// TestDamagedFileIsRefused flips bits all over a file that was ended in order: nothing that is read is wrong, and the
// file is refused with what to do.
func TestDamagedFileIsRefused(t *testing.T) {
	raw, ids := written(t, 12, 3, true)
	file := filepath.Join(t.TempDir(), "decisions-1"+decisionlog.Suffix)
	for n := 0; n < len(raw); n += 61 {
		spoilt := bytes.Clone(raw)
		spoilt[n] ^= 1 << (n % 8)
		got, torn, err := readBytes(t, file, spoilt)
		if fmt.Sprint(got) != fmt.Sprint(ids[:len(got)]) {
			t.Fatalf("byte %d: read %v", n, got)
		}
		if code := fault.CodeOf(err); (code != "log_damaged" && code != "log_version") || len(torn) > 0 {
			t.Fatalf("byte %d of %d: %v, %v", n, len(raw), torn, err)
		}
	}
}

// TestFullQueueDropsWithoutBlocking: whoever appends is never kept waiting.
func TestFullQueueDropsWithoutBlocking(t *testing.T) {
	l, err := decisionlog.Open(decisionlog.Options{Dir: t.TempDir(), Queue: 4})
	if err != nil {
		t.Fatal(err)
	}
	ds := history(rand.New(rand.NewPCG(3, 8)), 20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				for _, d := range ds {
					l.Append(d)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := l.Stats()
	if s.Recorded+s.Dropped != 8*20*20 || s.Dropped == 0 || s.Recorded == 0 {
		t.Errorf("%+v", s)
	}
	if l.Append(ds[0]) || l.Flush(t.Context()) != nil {
		t.Error("a closed log took a decision")
	}
}

// TestDiskErrorsAreCounted: a log whose directory disappears counts the errors.
func TestDiskErrorsAreCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := open(t, dir, decisionlog.MinMaxBytes)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	ds := history(rand.New(rand.NewPCG(3, 9)), 2)
	l.Append(ds[0])
	if err := l.Flush(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.Append(ds[1])
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Failed != 1 || s.Recorded != 1 {
		t.Errorf("%+v", s)
	}
	if ids := verifyAll(t, dir); len(ids) != 1 || ids[0] != ds[1].ID {
		t.Errorf("%v", ids)
	}
}

// TestFindPagesByAppMachineTimeAndOutcome pages through a log by app, machine, time and outcome.
func TestFindPagesByAppMachineTimeAndOutcome(t *testing.T) {
	l := open(t, t.TempDir(), decisionlog.MinMaxBytes)
	all := history(rand.New(rand.NewPCG(3, 10)), 300)
	for _, d := range all {
		l.Append(d)
	}
	var got []string
	q := decisionlog.Query{App: "b", Limit: 7}
	for {
		page, err := l.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Decisions {
			got, q.Before = append(got, d.ID), d.ID
		}
		if !page.More {
			break
		}
	}
	var want []string
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Request.App == "b" {
			want = append(want, all[i].ID)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %d decisions of b, want %d", len(got), len(want))
	}
	one, err := l.Find(t.Context(), decisionlog.Query{Machine: all[100].Request.Machine})
	if err != nil || len(one.Decisions) != 1 || one.Decisions[0].ID != all[100].ID {
		t.Errorf("%+v %v", one, err)
	}
	since, err := l.Find(t.Context(), decisionlog.Query{Since: all[290].At, Limit: 1000})
	if err != nil || len(since.Decisions) < 10 || len(since.Decisions) > 12 {
		t.Errorf("%d decisions, %v", len(since.Decisions), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzScanReadsOrRefuses: whatever a file holds, it is read or refused with a sentence.
func FuzzScanReadsOrRefuses(f *testing.F) {
	f.Add([]byte("x"))
	f.Add([]byte("\x5d\x2a\x4d\x18\x2c\x00\x00\x00F\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(t.TempDir(), "decisions-1"+decisionlog.Suffix)
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := decisionlog.Scan(file, func(*decision.Line, *decision.RecordCache) error { return nil })
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Fatal(err)
		}
		if _, err := decisionlog.Find(t.Context(), file, decisionlog.Query{}); err != nil &&
			fault.KindOf(err) == fault.Internal {
			t.Fatal(err)
		}
	})
}

func BenchmarkAppendDecision(b *testing.B) {
	l, err := decisionlog.Open(decisionlog.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ds := history(rand.New(rand.NewPCG(3, 11)), 2000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for !l.Append(ds[i%len(ds)]) {
			if err := l.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	s := l.Stats()
	b.ReportMetric(float64(s.Bytes)/float64(s.Recorded), "bytes/decision")
}

// TestDecisionMayReferToOldAndNewRecords: a buyer that waited refers to what a worker was nine changes ago, and to what it
// is now. To tell the new version pushed the old one out of the readers' caches.
func TestDecisionMayReferToOldAndNewRecords(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 1<<20)
	version := func(n int) *cluster.Record {
		return &cluster.Record{Worker: "w1", Incarnation: 1, Version: uint64(n), Machines: n}
	}
	var id string
	tell := func(records ...*cluster.Record) {
		id = machine.NextULID(id, decisiontest.Epoch(), rand.New(rand.NewPCG(1, 1)))
		l.Append(&decision.Decision{ID: id, At: decisiontest.Epoch(), Records: records})
	}
	for n := range decision.CacheDepth {
		tell(version(n))
	}
	tell(version(0), version(decision.CacheDepth))
	if err := errors.Join(l.Flush(t.Context()), l.Close()); err != nil {
		t.Fatal(err)
	}
	there := 0
	_, err := decisionlog.Scan(dir, func(x *decision.Line, records *decision.RecordCache) error {
		if x.Decision != nil && x.Decision.ID == id {
			for _, n := range []int{0, decision.CacheDepth} {
				if r, ok := records.Get("w1", decision.RefOf(version(n))); ok && r.Machines == n {
					there++
				}
			}
		}
		return nil
	})
	if err != nil || there != 2 {
		t.Errorf("%d of 2 records are there: %v", there, err)
	}
}

// TestWaiterLearnsOfADroppedDecision: a caller that waits for a dropped decision gets an error.
func TestWaiterLearnsOfADroppedDecision(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "1m")
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	l := open(t, filepath.Join(dir, "log"), decisionlog.MinMaxBytes)
	l.Append(history(rand.New(rand.NewPCG(1, 2)), 1)[0])
	waittest.Until(t, "a write has failed", func() bool { return l.Stats().Failed > 0 })
	if err := l.Flush(t.Context()); err == nil {
		t.Error("nothing is said of a decision that was dropped")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestFullDiskDropsDecisionsAndKeepsFilesWhole: while the disk takes nothing, decisions are dropped, no file is left that has none, and what was
// recorded before and afterwards is whole.
func TestFullDiskDropsDecisionsAndKeepsFilesWhole(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "1m")
	all := history(rand.New(rand.NewPCG(1, 2)), 30)
	log, ballast := filepath.Join(dir, "log"), filepath.Join(dir, "ballast")
	l := open(t, log, decisionlog.MinMaxBytes)
	record := func(ds []*decision.Decision) (failed int) {
		for _, d := range ds {
			l.Append(d)
			if err := l.Flush(t.Context()); err != nil {
				failed++
			}
		}
		return failed
	}
	if failed := record(all[:10]); failed > 0 {
		t.Fatalf("%d decisions are not recorded", failed)
	}
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	failed := record(all[10:20])
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if lost := record(all[20:]); failed == 0 || lost > 0 {
		t.Errorf("on the full disk %d decisions failed, afterwards %d", failed, lost)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := decisionlog.Files(log)
	if err != nil || len(names) > 2 {
		t.Errorf("there are %d files, %v", len(names), err)
	}
	if ids := verifyAll(t, log); len(ids) != len(all)-failed {
		t.Errorf("%d decisions are recorded of %d, %d failed", len(ids), len(all), failed)
	}
}
