// Package runtimetest tests every runtime against the rules of package runtime.
//
// A runtime calls Run from its own tests. Rules that need real programs are checked only where Subject.Real is set; the
// others use only sleep, true, false, cat, and sh -c with echo, exit and sleep.
package runtimetest

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Subject is a runtime under test without any machines.
type Subject struct {
	Runtime runtime.Runtime
	// Reopen simulates a kill -9 and a new start of souk: the old Runtime is no longer used, and what runs continues.
	Reopen func(t *testing.T) runtime.Runtime
	// Crash kills the part of the runtime that lives beside souk; nil: there is none.
	Crash func(t *testing.T)
	// Real says that programs really run.
	Real bool
	// Contained says that no process can escape its machine (cgroups, a container, a sandbox).
	Contained bool
	// Ephemeral says that a machine's files exist only while it runs, except for volumes.
	Ephemeral bool
	// OwnPIDs says that a machine has pids of its own, and a first process that is not its program.
	OwnPIDs bool
	// Sandbox says that a machine has a kernel of its own that imitates Linux: its processes are reported as that
	// kernel sees them, and its /proc is less complete.
	Sandbox bool
	// LogBound is how many bytes of one machine's output are kept at most; 0: unknown.
	LogBound int64
	// RootOf returns the directory below which the paths of files and mounts lie; nil when it cannot be seen from
	// outside.
	RootOf func(machine string) string
}

// Run runs the tests of the suite in parallel. make is called once for each, in its goroutine.
func Run(t *testing.T, make func(t *testing.T) Subject) {
	if err := os.Setenv("SOUK_SECRET_OF_SOUK", "leaked"); err != nil { // no program may see it
		t.Fatal(err)
	}
	groups := []group{
		{"Unknown", false, testUnknown},
		{"Fresh", false, testFresh},
		{"AckAll", false, testAckAll},
		{"RemoveAll", false, testRemoveAll},
		{"Names", false, testNames},
		{"Prepare", false, testPrepare},
		{"StartIsIdempotent", false, testStartIdempotent},
		{"StartAfterExit", false, testStartAfterExit},
		{"OneLifeAtATime", false, testOneLife},
		{"NoSuchProgram", false, testNoSuchProgram},
		{"Check", false, testCheck},
		{"ExitCodes", false, testExitCodes},
		{"ExitsWaitForAck", false, testExitsWaitForAck},
		{"ExitsWhileDown", false, testExitsWhileDown},
		{"LivesGoOn", false, testLivesGoOn},
		{"Signal", false, testSignal},
		{"Kill", false, testKill},
		{"Remove", false, testRemove},
		{"Pause", false, testPause},
		{"Hibernate", false, testHibernate},
		{"Resize", false, testResize},
		{"Exec", false, testExec},
		{"ExecTimeout", false, testExecTimeout},
		{"Terminal", false, testTerminal},
		{"Processes", false, testProcesses},
		{"Logs", false, testLogs},
		{"LogsFollow", false, testLogsFollow},
		{"CancelledContext", false, testCancelled},
		{"ManyAtOnce", false, testMany},
		{"CheckFindsWhatStartDoes", true, testCheckFinds},
		{"Environment", true, testEnvironment},
		{"Signals", true, testRealSignals},
		{"ExecSharesTheMachine", true, testExecShares},
		{"ExecElsewhere", true, testExecElsewhere},
		{"ExecTimeoutKills", true, testExecKills},
		{"ExecBlocks", true, testExecBlocks},
		{"TerminalSession", true, testTerminalSession},
		{"TerminalHangsUp", true, testTerminalHangsUp},
		{"Attach", true, testAttach},
		{"PauseStopsCPU", true, testPauseStops},
		{"PauseRacesExec", true, testPauseRacesExec},
		{"HibernateKeeps", true, testHibernateKeeps},
		{"ExitSaysWhatWasUsed", true, testUsed},
		{"LeftoversEnd", true, testLeftovers},
		{"LogLines", true, testLogLines},
		{"LogBound", true, testLogBound},
		{"Files", true, testFiles},
		{"FilesStayInside", true, testFilesInside},
		{"Mounts", true, testMounts},
		{"SizedMount", true, testSizedMount},
		{"Copy", true, testCopy},
		{"CopyStaysInside", true, testCopyInside},
		{"CopyOfAVolume", true, testCopyVolume},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel() // most of them wait for processes
			s := make(t)
			if g.real && !s.Real {
				t.Skip("nothing really runs")
			}
			g.f(&harness{T: t, Subject: s, rt: s.Runtime})
		})
	}
}

// group is the tests of one rule.
type group struct {
	name string
	real bool // it needs programs that really run
	f    func(h *harness)
}

// harness is one test's runtime with helpers that fail the test.
type harness struct {
	*testing.T
	Subject
	rt runtime.Runtime
}

func (h *harness) ctx() context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), waittest.Patience)
	h.Cleanup(cancel)
	return ctx
}

func spec(machine string, attempt uint64, argv ...string) runtime.Spec {
	s := runtime.Spec{Machine: machine, Attempt: attempt, App: "app", Image: "souk/host", Argv: argv, SwapMB: -1}
	s.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	s.Resources.CPU, s.Resources.Memory = 2000, 256
	return s
}

func sh(machine string, attempt uint64, script string) runtime.Spec {
	return spec(machine, attempt, "sh", "-c", script)
}

// processes returns how many processes a machine has if n were started in it.
func (h *harness) processes(n int) int {
	if h.OwnPIDs {
		n++ // its first process
	}
	return n
}

// begun returns a machine's processes once its program is among them: an init is executed before the program.
func (h *harness) begun(id string) (ps []machine.Process) {
	h.Helper()
	h.until("the program runs", func() bool {
		var err error
		ps, err = h.rt.Processes(h.ctx(), id)
		h.ok(err)
		return len(ps) >= h.processes(1)
	})
	return ps
}

// start prepares and starts.
func (h *harness) start(s runtime.Spec) runtime.Status {
	h.Helper()
	if err := h.rt.Prepare(h.ctx(), s); err != nil {
		h.Fatalf("prepare: %v", err)
	}
	st, err := h.rt.Start(h.ctx(), s)
	if err != nil {
		h.Fatalf("start: %v", err)
	}
	return st
}

func (h *harness) exit() runtime.Exit {
	h.Helper()
	select {
	case x, ok := <-h.rt.Exits():
		if !ok {
			h.Fatal("the exits were closed")
		}
		return x
	case <-time.After(waittest.Patience):
		h.Fatal("no exit came")
	}
	panic("unreachable")
}

// exitOf waits for the exit of one life, and ignores exits of others that are delivered again.
func (h *harness) exitOf(machine string, attempt uint64) runtime.Exit {
	h.Helper()
	for {
		if x := h.exit(); x.Machine == machine && x.Attempt == attempt {
			return x
		}
	}
}

func (h *harness) noExit() {
	h.Helper()
	select {
	case x := <-h.rt.Exits():
		h.Fatalf("an exit came: %+v", x)
	case <-time.After(50 * time.Millisecond): // there is no event for an exit that must not come
	}
}

func (h *harness) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// want checks an error's kind and that it has a message.
func (h *harness) want(err error, kinds ...fault.Kind) {
	h.Helper()
	if err == nil {
		h.Fatalf("no error, want %v", kinds)
	}
	if !slices.Contains(kinds, fault.KindOf(err)) {
		h.Fatalf("%v is %s, want %v", err, fault.KindOf(err), kinds)
	}
	if len(err.Error()) < 10 {
		h.Fatalf("%q is no sentence", err)
	}
}

func (h *harness) status(machine string) (runtime.Status, bool) {
	h.Helper()
	all, err := h.rt.List(h.ctx())
	h.ok(err)
	for _, s := range all {
		if s.Machine == machine {
			return s, true
		}
	}
	return runtime.Status{}, false
}

func (h *harness) reopen() {
	h.Helper()
	h.rt = h.Reopen(h.T)
}

// lines reads a machine's log.
func (h *harness) lines(id string, q machine.LogQuery) []machine.LogLine {
	h.Helper()
	var out []machine.LogLine
	h.ok(h.rt.Logs(h.ctx(), id, q, func(l machine.LogLine) error { out = append(out, l); return nil }))
	return out
}

// texts reads a machine's log without times.
func (h *harness) texts(machine string, q machine.LogQuery) []string {
	h.Helper()
	out := []string{}
	for _, l := range h.lines(machine, q) {
		out = append(out, l.Text)
	}
	return out
}

// until waits for a condition that has no event of its own.
func (h *harness) until(what string, f func() bool) {
	h.Helper()
	waittest.Until(h, what, f)
}
