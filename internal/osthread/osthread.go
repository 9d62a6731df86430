// Package osthread runs what changes the thread that it runs on for good: one that enters a namespace or a group.
package osthread

import (
	"os"
	"runtime"
	"syscall"
)

// Go starts f on a thread of the operating system which ends with it, whatever f has made of the thread. It is never
// the first thread of the process: that one cannot end before the process does, so that what it entered would stay in
// being (mounts, with the devices behind them), and it is the one that /proc/self and /proc/PID tell of.
func Go(f func()) { go run(f) }

func run(f func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != os.Getpid() {
		f()
		return // not unlocked: the thread ends
	}
	elsewhere := make(chan struct{})
	go func() {
		runtime.LockOSThread() // which the first thread cannot be, as long as it is held here
		close(elsewhere)
		f()
	}()
	<-elsewhere
	runtime.UnlockOSThread()
}
