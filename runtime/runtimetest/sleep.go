package runtimetest

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// hibernate suspends attempt 1 of a machine to disk. If the runtime cannot do it, the machine must continue.
func (h *harness) hibernate(id string) {
	h.Helper()
	z, ok := h.rt.(runtime.Hibernator)
	if !ok {
		h.Skip("it cannot suspend to disk")
	}
	err := z.Hibernate(h.ctx(), id, 1)
	if fault.CodeOf(err) == runtime.CodeAwake {
		h.want(err, fault.Precondition)
		if st, _ := h.status(id); !st.Running || st.Paused || st.OnDisk || st.PID == 0 {
			h.Errorf("it cannot be suspended to disk, and is %+v", st)
		}
		h.Skip(err)
	}
	h.ok(err)
}

func (h *harness) wake(s runtime.Spec) runtime.Status {
	h.Helper()
	z, _ := h.rt.(runtime.Hibernator)
	st, err := z.Wake(h.ctx(), s)
	h.ok(err)
	if !st.Running || st.Paused || st.OnDisk || st.PID == 0 || st.Attempt != s.Attempt {
		h.Errorf("woken it is %+v", st)
	}
	return st
}

func testHibernate(h *harness) {
	z, ok := h.rt.(runtime.Hibernator)
	if !ok {
		h.Skip("it cannot suspend to disk")
	}
	s := spec("m", 1, "sleep", "1000")
	h.want(z.Hibernate(h.ctx(), "m", 1), fault.NotFound)
	h.ok(h.rt.Prepare(h.ctx(), s))
	h.want(z.Hibernate(h.ctx(), "m", 1), fault.Precondition)
	st := h.start(s)
	h.want(z.Hibernate(h.ctx(), "m", 2), fault.Precondition) // the attempt of another life
	if again := h.wake(s); again.PID != st.PID {             // it is not suspended: nothing to do
		h.Errorf("it was %+v, and is %+v", st, again)
	}
	sleeps := func(when string) {
		h.Helper()
		if st, _ := h.status("m"); !st.Running || !st.Paused || !st.OnDisk || st.PID != 0 || st.Attempt != 1 {
			h.Errorf("%s: %+v, want it on disk", when, st)
		}
	}
	for range 2 {
		h.hibernate("m")
		sleeps("suspended")
	}
	if p, can := h.rt.(runtime.Pauser); can {
		h.ok(p.Pause(h.ctx(), "m"))
		h.want(p.Resume(h.ctx(), "m"), fault.Precondition)
	}
	_, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"true"}})
	h.want(err, fault.Precondition)
	h.want(h.rt.Signal(h.ctx(), "m", syscall.SIGTERM), fault.Precondition)
	if m, can := h.rt.(runtime.Meter); can && h.Real {
		_, err := m.Usage(h.ctx(), "m")
		h.want(err, fault.Precondition)
	}
	next := s
	next.Attempt = 2
	_, err = h.rt.Start(h.ctx(), next)
	h.want(err, fault.Conflict)
	h.reopen()
	sleeps("after a restart")
	if h.Crash != nil {
		h.Crash(h.T)
		h.until("the next reaper has it", func() bool { _, err := h.rt.List(h.ctx()); return err == nil })
		sleeps("after a crash")
	}
	h.noExit()
	st = h.wake(s)
	if again := h.wake(s); again.PID != st.PID {
		h.Errorf("it was woken as %+v, and is %+v", st, again)
	}
	code, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"true"}})
	if err != nil || code != 0 {
		h.Errorf("a command in it ended with %d, %v", code, err)
	}
	h.hibernate("m")
	h.ok(h.rt.Kill(h.ctx(), "m"))
	if x := h.exitOf("m", 1); x.Signal != 9 {
		h.Errorf("exit %+v", x)
	}
	z, _ = h.rt.(runtime.Hibernator)
	_, err = z.Wake(h.ctx(), s)
	h.want(err, fault.Precondition)
	s2 := spec("n", 1, "sleep", "1000")
	h.ok(h.rt.Prepare(h.ctx(), s2))
	h.start(s2)
	h.hibernate("n")
	h.ok(h.rt.Remove(h.ctx(), "n"))
	h.start(next)
}

// testHibernateKeeps: a program's memory and files are restored, and each line that it writes is in the log once.
func testHibernateKeeps(h *harness) {
	if _, ok := h.rt.(runtime.Hibernator); !ok {
		h.Skip("it cannot suspend to disk")
	}
	s := sh("m", 1, "echo kept > /tmp/f; i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done")
	h.ok(h.rt.Prepare(h.ctx(), s))
	h.start(s)
	lines := func() (n int) {
		h.ok(h.rt.Logs(h.ctx(), "m", machine.LogQuery{}, func(l machine.LogLine) error {
			if n++; l.Text != strconv.Itoa(n) {
				h.Errorf("line %d is %q", n, l.Text)
			}
			return nil
		}))
		return n
	}
	for range 2 {
		before := lines()
		h.until("it counts", func() bool { return lines() > before+3 })
		h.hibernate("m")
		at := lines()
		h.wake(s)
		h.until("it counts on", func() bool { return lines() > at+3 })
	}
	if out := h.says("m", "cat /tmp/f"); strings.TrimSpace(out) != "kept" {
		h.Errorf("what it had written is %q", out)
	}
	h.noExit()
}
