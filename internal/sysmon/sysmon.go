// Package sysmon slows down the Go runtime's monitor thread.
//
// That thread (sysmon in runtime/proc.go) takes processors back from goroutines that wait in the kernel, and preempts
// those that run for long. As long as anything happens it wakes every 20 µs, at least 50 times. In a program that waits
// for a disk or a process every few hundred microseconds, on a machine where a timer interrupt costs several, that is a
// fifth of all CPU use: each wake-up takes a core from another thread.
package sysmon

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// codeSysmon says that the timers of the Go runtime cannot be changed.
const codeSysmon fault.Code = "sysmon"

// Slack is by how much the monitor may oversleep in souk's server processes. It bounds how long a goroutine that waits
// in the kernel keeps its processor (P) from others; without it that is 20 µs, up to the 10 ms that the monitor sleeps
// by itself after an idle time.
//
// Do not use it in the reaper: a later processor may need a new thread, and if the kernel cannot make one by then, the
// Go program crashes.
const Slack = 2 * time.Millisecond

// Default is the kernel's default timer slack.
const Default = 50 * time.Microsecond

// Calm lets the kernel wake this process's monitor up to slack later than asked, together with other timers. Threads
// made by the monitor and their child processes inherit the slack, unless they call Exact.
//
// Errors: Precondition "sysmon" if the system does not allow it; it needs CAP_SYS_NICE.
func Calm(slack time.Duration) error {
	tid, err := monitor()
	if err == nil {
		ns := strconv.FormatInt(slack.Nanoseconds(), 10)
		err = os.WriteFile("/proc/"+strconv.Itoa(tid)+"/timerslack_ns", []byte(ns), 0)
	}
	if err != nil {
		return fault.Wrap(err, fault.Precondition, codeSysmon, "the timer slack of the Go runtime's monitor thread "+
			"cannot be raised")
	}
	return nil
}

// Exact gives the calling thread, which must be locked, and its children the kernel's default timer slack.
func Exact() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Default.Nanoseconds()), 0, 0, 0); err != nil {
		return fault.Wrap(err, fault.Precondition, codeSysmon, "the timer slack of the thread that starts programs "+
			"cannot be set")
	}
	return nil
}

// pidRange is an upper bound of thread ids (PID_MAX_LIMIT in the kernel).
const pidRange = 1 << 22

// monitor returns the id of the monitor's thread: the first that a process makes, before any code of its own runs.
// Thread ids are assigned in order and wrap around, so it is the next one after the process's own id.
func monitor() (int, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	first, nearest := 0, pidRange
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return 0, err
		}
		if far := (tid - os.Getpid() + pidRange) % pidRange; far > 0 && far < nearest {
			first, nearest = tid, far
		}
	}
	if first == 0 {
		return 0, errors.New("the process has one thread")
	}
	return first, nil
}
