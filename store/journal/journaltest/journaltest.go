// Package journaltest tests that a journal keeps the contract of package journal.
//
//	func TestConformance(t *testing.T) { journaltest.Run(t, open) }
//
// A journal that must survive kill -9 is tested with Crash, for which the test binary starts itself again:
//
//	func TestMain(m *testing.M) {
//		if journaltest.Child(open) { return }
//		os.Exit(m.Run())
//	}
package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// Open opens the journal in dir. After Close it must open with the same content.
type Open func(dir string) (journal.Journal, error)

// Run tests a journal against the contract.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"empty", testEmpty},
		{"put, replace, delete", testPutDelete},
		{"later record of a batch wins", testOrderInBatch},
		{"order of load", testLoadOrder},
		{"empty value is not a delete", testEmptyValue},
		{"values are the caller's", testCopies},
		{"big values", testBig},
		{"many buckets", testManyBuckets},
		{"refused batches change nothing", testRefused},
		{"an error of f ends a load", testLoadError},
		{"written", testWritten},
		{"closed", testClosed},
		{"many callers", testManyCallers},
		{"model", testModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openJournal(t testing.TB, open Open, dir string) journal.Journal {
	t.Helper()
	j, err := open(dir)
	must(t, err)
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return j
}

// reopen closes j and opens the same directory again.
func reopen(t testing.TB, open Open, j journal.Journal, dir string) journal.Journal {
	t.Helper()
	must(t, j.Close())
	return openJournal(t, open, dir)
}

// Read returns a journal's content as "bucket/key" -> value, and fails on a record that is out of order or repeated.
func Read(t testing.TB, j journal.Journal) map[string]string {
	t.Helper()
	got := map[string]string{}
	var last fsm.Record
	must(t, j.Load(func(r fsm.Record) error {
		if r.Value == nil {
			return fmt.Errorf("%s/%s: a live record has a nil value", r.Bucket, r.Key)
		}
		if len(got) > 0 && (r.Bucket < last.Bucket || r.Bucket == last.Bucket && r.Key <= last.Key) {
			return fmt.Errorf("%q/%q came after %q/%q", r.Bucket, r.Key, last.Bucket, last.Key)
		}
		last = r
		got[r.Bucket+"/"+r.Key] = string(r.Value)
		return nil
	}))
	return got
}

func expectRecords(t testing.TB, j journal.Journal, want map[string]string) {
	t.Helper()
	if d := cmp.Diff(want, Read(t, j)); d != "" {
		t.Errorf("content (-want +got):\n%s", d)
	}
}

func putRecord(bucket, key, value string) fsm.Record {
	return fsm.Record{Bucket: bucket, Key: key, Value: []byte(value)}
}

func deleteRecord(bucket, key string) fsm.Record { return fsm.Record{Bucket: bucket, Key: key} }

func testEmpty(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	expectRecords(t, j, map[string]string{})
	must(t, j.Commit(nil))
	must(t, j.Commit([]fsm.Record{deleteRecord("b", "never there")}))
	expectRecords(t, reopen(t, open, j, dir), map[string]string{})
}

func testPutDelete(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	must(t, j.Commit([]fsm.Record{putRecord("b", "k1", "one"), putRecord("b", "k2", "two"),
		putRecord("c", "k1", "three")}))
	must(t, j.Commit([]fsm.Record{putRecord("b", "k1", "four"), deleteRecord("b", "k2"), deleteRecord("d", "x")}))
	want := map[string]string{"b/k1": "four", "c/k1": "three"}
	expectRecords(t, j, want)
	j = reopen(t, open, j, dir)
	expectRecords(t, j, want)
	must(t, j.Commit([]fsm.Record{deleteRecord("b", "k1"), deleteRecord("c", "k1")}))
	expectRecords(t, reopen(t, open, j, dir), map[string]string{})
}

// testWritten checks that a commit's written function is called once, before Commit returns, for any batch.
func testWritten(t *testing.T, open Open) {
	j := openJournal(t, open, t.TempDir())
	big := strings.Repeat("x", 5<<20) // more than a log holds
	for name, batch := range map[string][]fsm.Record{"none": nil, "one": {putRecord("b", "k", "v")},
		"big": {putRecord("b", "big", big)}} {
		var first, second int
		must(t, j.Commit(batch, func() { first++ }, func() { second++ }))
		if first != 1 || second != 1 {
			t.Errorf("%s: the two were called %d and %d times", name, first, second)
		}
	}
	told := 0
	if err := j.Commit([]fsm.Record{{Bucket: "", Key: "k"}}, func() { told++ }); err == nil || told != 0 {
		t.Errorf("a batch that was refused counts as written %d times: %v", told, err)
	}
	var all sync.WaitGroup
	var n atomic.Int64
	for i := range 50 {
		all.Go(func() { _ = j.Commit([]fsm.Record{putRecord("b", strconv.Itoa(i), "v")}, func() { n.Add(1) }) })
	}
	all.Wait()
	if n.Load() != 50 {
		t.Errorf("50 commits at once: %d were told of", n.Load())
	}
}

func testOrderInBatch(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	must(t, j.Commit([]fsm.Record{
		putRecord("b", "put then delete", "x"), putRecord("b", "delete then put", "old"), putRecord("b", "twice", "1"),
		deleteRecord("b", "put then delete"), deleteRecord("b", "delete then put"), putRecord("b", "twice", "2"),
		putRecord("b", "delete then put", "new"),
	}))
	expectRecords(t, reopen(t, open, j, dir), map[string]string{"b/delete then put": "new", "b/twice": "2"})
}

func testLoadOrder(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	want := map[string]string{}
	var batch []fsm.Record
	for _, b := range []string{"z", "a", "m\x00", "m", "ä"} {
		for _, k := range []string{"9", "10", "\xff", "\x00", "a/b", "a", " "} {
			batch = append(batch, putRecord(b, k, b+k))
			want[b+"/"+k] = b + k
		}
	}
	must(t, j.Commit(batch))
	expectRecords(t, reopen(t, open, j, dir), want) // Read checks the order
}

func testEmptyValue(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	must(t, j.Commit([]fsm.Record{{Bucket: "b", Key: "empty", Value: []byte{}}, putRecord("b", "full", "x"),
		putRecord("b", "gone", "x")}))
	must(t, j.Commit([]fsm.Record{{Bucket: "b", Key: "full", Value: []byte{}}, {Bucket: "b", Key: "gone", Value: nil}}))
	expectRecords(t, reopen(t, open, j, dir), map[string]string{"b/empty": "", "b/full": ""})
}

func testCopies(t *testing.T, open Open) {
	j := openJournal(t, open, t.TempDir())
	v := []byte("mine")
	must(t, j.Commit([]fsm.Record{{Bucket: "b", Key: "k", Value: v}}))
	copy(v, "xxxx")
	var kept []byte
	must(t, j.Load(func(r fsm.Record) error { kept = r.Value; return nil }))
	copy(kept, "yyyy")
	_ = append(kept, "zzzz"...)
	expectRecords(t, j, map[string]string{"b/k": "mine"})
}

func testBig(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	want := map[string]string{}
	for i := range 5 {
		v := bytes.Repeat([]byte{byte('a' + i)}, 1<<20+i)
		must(t, j.Commit([]fsm.Record{{Bucket: "big", Key: fmt.Sprint(i), Value: v}, putRecord("small", fmt.Sprint(i),
			"s")}))
		want["big/"+fmt.Sprint(i)], want["small/"+fmt.Sprint(i)] = string(v), "s"
	}
	must(t, j.Commit([]fsm.Record{deleteRecord("big", "2"), putRecord("big", "3", "now small")}))
	delete(want, "big/2")
	want["big/3"] = "now small"
	got := Read(t, reopen(t, open, j, dir))
	if len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %d bytes differ from the %d written", k, len(got[k]), len(v))
		}
	}
}

func testManyBuckets(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	want := map[string]string{}
	var batch []fsm.Record
	for i := range 500 {
		b := fmt.Sprintf("bucket-%03d", i)
		batch = append(batch, putRecord(b, "k", b), putRecord(b, "l", ""))
		want[b+"/k"], want[b+"/l"] = b, ""
	}
	must(t, j.Commit(batch))
	expectRecords(t, reopen(t, open, j, dir), want)
}

func testRefused(t *testing.T, open Open) {
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	must(t, j.Commit([]fsm.Record{putRecord("b", "k", "v")}))
	long := string(bytes.Repeat([]byte("x"), journal.MaxKey+1))
	for name, bad := range map[string]fsm.Record{
		"no bucket":         putRecord("", "k", "v"),
		"no key":            putRecord("b", "", "v"),
		"delete without":    deleteRecord("b", ""),
		"reserved bucket":   putRecord("\x00souk", "state", "v"),
		"long bucket":       putRecord(long, "k", "v"),
		"long key":          putRecord("b", long, "v"),
		"value over bounds": {Bucket: "b", Key: "k", Value: make([]byte, journal.MaxValue+1)},
	} {
		err := j.Commit([]fsm.Record{putRecord("b", "before", "v"), bad, putRecord("b", "after", "v")})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	must(t, j.Commit([]fsm.Record{putRecord("b", "k2", "v")})) // it still works
	expectRecords(t, reopen(t, open, j, dir), map[string]string{"b/k": "v", "b/k2": "v"})
}

func testLoadError(t *testing.T, open Open) {
	j := openJournal(t, open, t.TempDir())
	must(t, j.Commit([]fsm.Record{putRecord("b", "1", "v"), putRecord("b", "2", "v"), putRecord("c", "3", "v")}))
	enough, calls := errors.New("enough"), 0
	if err := j.Load(func(fsm.Record) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%v after %d calls, want f's own error after 1", err, calls)
	}
}

func testClosed(t *testing.T, open Open) {
	j := openJournal(t, open, t.TempDir())
	must(t, j.Commit([]fsm.Record{putRecord("b", "k", "v")}))
	must(t, j.Close())
	must(t, j.Close())
	if err := j.Commit([]fsm.Record{putRecord("b", "k", "v")}); fault.CodeOf(err) != journal.CodeJournalClosed {
		t.Errorf("commit: %v, want journal_closed", err)
	}
	if err := j.Load(func(fsm.Record) error { return nil }); fault.CodeOf(err) != journal.CodeJournalClosed {
		t.Errorf("load: %v, want journal_closed", err)
	}
}

// testManyCallers commits from many goroutines, each with its own keys and all with one shared pair, whose two halves
// must agree.
func testManyCallers(t *testing.T, open Open) {
	const callers, rounds = 16, 20
	dir := t.TempDir()
	j := openJournal(t, open, dir)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range rounds {
				me := fmt.Sprintf("%d.%d", c, i)
				if err := j.Commit([]fsm.Record{
					putRecord("shared", "left", me), putRecord("own", fmt.Sprint(c), fmt.Sprint(i)),
					putRecord("all", me, me),
					putRecord("shared", "right", me),
				}); err != nil {
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	got := Read(t, reopen(t, open, j, dir))
	if got["shared/left"] != got["shared/right"] {
		t.Errorf("a batch was torn: %q and %q", got["shared/left"], got["shared/right"])
	}
	if want := 2 + callers + callers*rounds; len(got) != want {
		t.Errorf("%d records, want %d", len(got), want)
	}
	for c := range callers {
		if got[fmt.Sprintf("own/%d", c)] != fmt.Sprint(rounds-1) {
			t.Errorf("caller %d ends with %q", c, got[fmt.Sprintf("own/%d", c)])
		}
	}
}

// testModel compares random batches, refusals and reopenings with a map.
func testModel(t *testing.T, open Open) {
	top := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := fmt.Sprintf("%s/%d", top, n)
		must(t, mkdir(dir))
		j, err := open(dir)
		must(t, err)
		model := map[string]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if rapid.IntRange(0, 5).Draw(rt, "reopen") == 0 {
				must(t, j.Close())
				j, err = open(dir)
				must(t, err)
			}
			must(t, j.Commit(drawBatch(rt, model)))
		}
		if d := cmp.Diff(model, Read(t, j)); d != "" {
			rt.Errorf("content (-want +got):\n%s", d)
		}
		must(t, j.Close())
	})
}

func drawBatch(rt *rapid.T, model map[string]string) []fsm.Record {
	var batch []fsm.Record
	for range rapid.IntRange(0, 20).Draw(rt, "batch") {
		b := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "bucket")
		k := rapid.StringMatching(`[a-d]{1,3}`).Draw(rt, "key")
		if rapid.IntRange(0, 2).Draw(rt, "delete") == 0 {
			batch = append(batch, deleteRecord(b, k))
			delete(model, b+"/"+k)
			continue
		}
		v := rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(rt, "value")
		batch = append(batch, fsm.Record{Bucket: b, Key: k, Value: append([]byte{}, v...)})
		model[b+"/"+k] = string(v)
	}
	return batch
}
