package bolt_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/store/journal/bolt"
	"github.com/soukhq/souk/store/journal/journaltest"
)

var transitions = flag.Int("transitions", 15_000, "transitions that TestChurnKeepsTheFileBounded makes; 1000000: full")

// floor measures this disk: append size bytes and fsync, one after the other.
func floor(t testing.TB, size, n int) time.Duration {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "floor"))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, size)
	begin := time.Now()
	for range n {
		_, err := f.Write(buf)
		if err := errors.Join(err, f.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begin) / time.Duration(n)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return took
}

// churn is the n-th transition of a worker with 1,000 machines: the machine's row is replaced, its run's record is
// put or deleted, and one line of its bounded history is replaced.
func churn(n int, row []byte) []fsm.Record {
	id := fmt.Sprintf("%014x", n%1000)
	step := n / 1000
	run := fsm.Record{Bucket: "runs", Key: id}
	if step%4 != 3 {
		run.Value = row[:200+step%50]
	}
	return []fsm.Record{
		{Bucket: "machines", Key: id, Value: row[:900+step%300]}, run,
		{Bucket: "history", Key: fmt.Sprintf("%s/%02d", id, step%20), Value: row[:120]},
	}
}

// TestChurnKeepsTheFileBounded makes transitions of 1,000 machines from 64 callers, and holds the file to a bound: it stops growing.
func TestChurnKeepsTheFileBounded(t *testing.T) {
	const callers = 64
	path := filepath.Join(t.TempDir(), "journal")
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	row := make([]byte, 2000)
	var next atomic.Int64
	var middle int64 // the file's size at half the way
	begin := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for n := int(next.Add(1)); n <= *transitions; n = int(next.Add(1)) {
				if err := j.Commit(churn(n, row)); err != nil {
					t.Error(err)
					return
				}
				if n == *transitions/2 {
					middle, _, err = j.Size()
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	size, free, err2 := j.Size()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	live := 0
	for _, v := range journaltest.Read(t, j) {
		live += len(v)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	j, err = bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(begin)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	f := floor(t, 4096, 200)
	t.Logf("%d transitions by %d callers in %v: %.0f/s; floor (append + fsync) %v = %.0f/s", *transitions, callers,
		took.Round(time.Millisecond), float64(*transitions)/took.Seconds(), f, 1/f.Seconds())
	t.Logf("live values %.1f MB, file %.1f MB (half way %.1f MB), of it free %.1f MB; open with full verification %v",
		mb(int64(live)), mb(size), mb(middle), mb(free), opened)
	if bound := int64(live)*4 + 8<<20; size > bound {
		t.Errorf("the file has %d bytes, and %d are the bound", size, bound)
	}
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

// BenchmarkCommitByCallers prints commits per second for 1 and 64 callers, next to the floor of the same run.
func BenchmarkCommitByCallers(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			f := floor(b, 4096, 100)
			j, err := bolt.Open(filepath.Join(b.TempDir(), "journal"), bolt.Options{})
			if err != nil {
				b.Fatal(err)
			}
			row := make([]byte, 2000)
			for from := 0; from < 20000; from += 1000 { // a journal in use
				var batch []fsm.Record
				for n := from; n < from+1000; n++ {
					batch = append(batch, churn(n, row)...)
				}
				if err := j.Commit(batch); err != nil {
					b.Fatal(err)
				}
			}
			var next atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
						if err := j.Commit(churn(n, row)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			each := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(1/each.Seconds(), "commits/s")
			b.ReportMetric(1/f.Seconds(), "floor/s")
			b.ReportMetric(float64(each)/float64(f), "x-floor")
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkOpen100000Records opens a journal of 100,000 records with every check.
func BenchmarkOpen100000Records(b *testing.B) {
	path := filled(b, 100_000, 250)
	for b.Loop() {
		j, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
