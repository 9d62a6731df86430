// Package osthread runs functions that change their OS thread for good, for instance by entering a namespace or a
// cgroup.
package osthread

import (
	"os"
	"runtime"
	"syscall"
)

// Go starts f on an OS thread that ends with f, whatever f has done to the thread. It is never the process's first
// thread: that one lives as long as the process, so a namespace that it entered would stay (mounts, with their
// devices), and /proc/self and /proc/PID show that thread.
func Go(f func()) { go run(f) }

func run(f func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != os.Getpid() {
		f()
		return // without unlocking, so the thread ends
	}
	elsewhere := make(chan struct{})
	go func() {
		runtime.LockOSThread() // while this goroutine holds the first thread, the next one runs on another
		close(elsewhere)
		f()
	}()
	<-elsewhere
	runtime.UnlockOSThread()
}
