#!/usr/bin/env bash
# Go 1.26 on Linux: how long a timer of less than some ms takes where the process has nothing else to do.
#
# Guessed: a timer of 0.25 ms fires after 0.25 ms and some 0.05 ms, as nanosleep(2) does.
# Seen:    it fires after 1.1 ms, and one of 1.5 ms after 2.2 ms. An idle process waits in epoll_wait(2), which counts whole
#          ms, and the runtime rounds the rest of the time up to one (runtime/netpoll_epoll.go).
#
# What follows: who polls more often than once a ms sleeps with a timerfd, which epoll reports when it fires (wait.Precise); it
# keeps no thread and no processor, as nanosleep would.
#
# Needs Go. Fails when what is seen changes: then wait.Precise may go.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

func median(sleep func()) time.Duration {
	var took []time.Duration
	for range 301 {
		begin := time.Now()
		sleep()
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[150]
}

func main() {
	for _, d := range []time.Duration{250 * time.Microsecond, 1500 * time.Microsecond} {
		timer := median(func() { <-time.After(d) })
		kernel := median(func() { ts := syscall.NsecToTimespec(int64(d)); _ = syscall.Nanosleep(&ts, nil) })
		fmt.Printf("%v: timer late by more than 0.4 ms=%v, nanosleep=%v\n", d, timer-d > 400*time.Microsecond,
			kernel-d > 400*time.Microsecond)
		println(d.String(), timer.String(), kernel.String())
	}
}
GO
export GOFLAGS= GOTOOLCHAIN=local
go mod init finding 2> /dev/null
go build -o timers .
./timers | tee seen
diff - seen <<'EXPECTED'
250µs: timer late by more than 0.4 ms=true, nanosleep=false
1.5ms: timer late by more than 0.4 ms=true, nanosleep=false
EXPECTED
echo "as it was seen"
