// Package sysmon calms the thread with which the Go runtime monitors itself.
//
// That thread (sysmon in runtime/proc.go) takes processors back from goroutines that wait in the kernel, and stops
// those that run for long. As long as anything happens it looks every 20 µs, for at least 50 times. In a program that
// waits for a disk or a process every few hundred microseconds, and on a machine where a timer's interrupt costs
// several, that is a fifth of all it does: each look takes a core from somebody.
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

// Slack is by how much the monitor may oversleep in the processes of souk that serve. It is how long a goroutine that
// waits in the kernel keeps its processor from others at most, which otherwise is from 20 µs up to the 10 ms that the
// monitor sleeps by itself where nothing happened for a while.
//
// Not in the reaper: who gets a processor later may need a thread for which the kernel has no place by then, and that
// ends a program in Go.
const Slack = 2 * time.Millisecond

// Default is the slack that the kernel gives a process whose parents have asked for none.
const Default = 50 * time.Microsecond

// Calm lets the kernel wake this process's monitor later than it asks for, by slack at most, as it suits other wakings.
// Threads that the monitor makes inherit it, and so does what they fork, unless it is Exact.
//
// Errors: Precondition "sysmon" where the system does not let it, for which CAP_SYS_NICE is needed.
func Calm(slack time.Duration) error {
	tid, err := monitor()
	if err == nil {
		ns := strconv.FormatInt(slack.Nanoseconds(), 10)
		err = os.WriteFile("/proc/"+strconv.Itoa(tid)+"/timerslack_ns", []byte(ns), 0)
	}
	if err != nil {
		return fault.Wrap(err, fault.Precondition, codeSysmon, "the monitor of the Go runtime cannot be calmed")
	}
	return nil
}

// Exact gives the calling thread, which is locked, and what it forks timers as exact as the kernel's are by default,
// whoever made the thread.
func Exact() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Default.Nanoseconds()), 0, 0, 0); err != nil {
		return fault.Wrap(err, fault.Precondition, codeSysmon, "the timers of what is started cannot be made exact")
	}
	return nil
}

// pidRange is more than there are ids of threads (PID_MAX_LIMIT in the kernel).
const pidRange = 1 << 22

// monitor returns the id of the monitor's thread: the first that a process makes, before any code of its own runs. Ids
// are given out in order, round and round, so that it is the next behind the process's own.
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
