package pace_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/internal/pace"
)

// TestWriterSendsFirstAtOnceThenBatches: the first piece goes at once, what follows within a millisecond goes with the next flush, and what comes
// after a rest goes at once again.
func TestWriterSendsFirstAtOnceThenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu      sync.Mutex // of both
			got     bytes.Buffer
			flushed int
		)
		to := bufio.NewWriter(&got)
		w := pace.New(to, func() error {
			mu.Lock()
			defer mu.Unlock()
			flushed++
			return to.Flush()
		})
		put := func(s string) {
			if n, err := io.WriteString(w, s); n != len(s) || err != nil {
				t.Errorf("%q: %d, %v", s, n, err)
			}
		}
		want := func(s string, n int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got.String() != s || flushed != n {
				t.Errorf("%q after %d, want %q after %d", got.String(), flushed, s, n)
			}
		}
		put("a")
		want("a", 1)
		for range 100 {
			put("b")
		}
		want("a", 1)
		<-time.After(time.Millisecond)
		synctest.Wait()
		all := "a" + string(bytes.Repeat([]byte("b"), 100))
		want(all, 2)
		<-time.After(time.Hour)
		put("c")
		want(all+"c", 3)
		put("d")
		if err := w.Flush(); err != nil {
			t.Error(err)
		}
		want(all+"cd", 4)
		put("e")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		want(all+"cde", 5)
		if _, err := w.Write(nil); err == nil {
			t.Error("a write after the end is taken")
		}
		<-time.After(time.Second)
		synctest.Wait()
		want(all+"cde", 5)
	})
}

// TestWriterReportsAFailedFlushLater: a flush that fails while nobody waits for it is the error of the next write, and of Close.
func TestWriterReportsAFailedFlushLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var fails atomic.Bool
		w := pace.New(io.Discard, func() error {
			if fails.Load() {
				return broken
			}
			return nil
		})
		for range 2 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Error(err)
			}
		}
		fails.Store(true)
		<-time.After(time.Second)
		synctest.Wait()
		if _, err := w.Write([]byte("x")); !errors.Is(err, broken) {
			t.Error(err)
		}
		if err := w.Close(); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
