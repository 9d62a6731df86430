package osthread

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestLockedThreadIsNeverTheMainThread: what is started one after the other finds the first thread idle again and again, for the test's
// own goroutine waits. The threads that were used end.
func TestLockedThreadIsNeverTheMainThread(t *testing.T) {
	used := map[int]bool{}
	for range 2000 {
		tid := make(chan int)
		Go(func() { tid <- syscall.Gettid() })
		id := <-tid
		if id == os.Getpid() {
			t.Fatal("it ran on the first thread")
		}
		used[id] = true
	}
	waittest.Until(t, "the threads that were used are gone", func() bool {
		for id := range used {
			if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(id)); err == nil {
				return false
			}
		}
		return true
	})
}
