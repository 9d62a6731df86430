package runtimetest

import (
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

func (h *harness) checker() runtime.Checker {
	h.Helper()
	c, ok := h.rt.(runtime.Checker)
	if !ok {
		h.Skip("it cannot say beforehand what a start would refuse")
	}
	return c
}

// testCheck: a start is checked while another life of the machine runs, which continues; checking a stopped machine
// does not start it.
func testCheck(h *harness) {
	c := h.checker()
	s := spec("m", 1, "sleep", "1000")
	st := h.start(s)
	h.ok(c.Check(h.ctx(), spec("m", 0, "sleep", "5")))
	h.want(c.Check(h.ctx(), spec("m", 0, "/no/such/program")), fault.Precondition, fault.Invalid)
	h.want(c.Check(h.ctx(), spec("m", 0, "no-such-program")), fault.Precondition, fault.Invalid)
	h.want(c.Check(h.ctx(), spec("m", 0)), fault.Precondition, fault.Invalid)
	if now, _ := h.status("m"); now != st {
		h.Errorf("it was %+v, and is %+v", st, now)
	}
	again, err := h.rt.Start(h.ctx(), s)
	h.ok(err)
	if again != st {
		h.Errorf("the attempt was %+v, and is %+v", st, again)
	}
	h.ok(h.rt.Kill(h.ctx(), "m"))
	h.exitOf("m", 1)
	h.ok(h.rt.Ack(h.ctx(), "m", 1))
	h.ok(c.Check(h.ctx(), spec("m", 0, "true")))
	h.noExit()
	h.start(spec("m", 2, "sleep", "1000"))
}

// testCheckFinds: check and start refuse and accept the same, and the check considers the files that the start would
// write.
func testCheckFinds(h *harness) {
	c := h.checker()
	h.start(spec("m", 1, "sleep", "1000"))
	file := func(path, text string) runtime.File { return runtime.File{Path: path, Mode: 0o755, Data: []byte(text)} }
	user := func(name string) func(*runtime.Spec) { return func(s *runtime.Spec) { s.User = name } }
	files := func(list ...runtime.File) func(*runtime.Spec) {
		return func(s *runtime.Spec) { s.Files = list }
	}
	tool := "/usr/bin/env"
	for name, x := range map[string]struct {
		argv []string
		with func(*runtime.Spec)
		ok   bool
	}{
		"by path":     {argv: []string{tool, "true"}, ok: true},
		"a directory": {argv: []string{"/tmp"}},
		"no user":     {argv: []string{"true"}, with: user("nobody-of-this-name")},
		"a file":      {argv: []string{"true"}, with: files(file("/etc/app.conf", "x")), ok: true},
		"outside":     {argv: []string{"true"}, with: files(file("/../etc/app.conf", "x"))},
	} {
		h.Run(name, func(t *testing.T) {
			s := spec("m", 0, x.argv...)
			if x.with != nil {
				x.with(&s)
			}
			checked := c.Check(h.ctx(), s)
			s.Machine, s.Attempt, s.Fresh = "other", 1, true
			_, started := h.rt.Start(h.ctx(), s)
			h.ok(h.rt.Remove(h.ctx(), "other"))
			if (checked == nil) != x.ok || (started == nil) != x.ok {
				t.Errorf("the check says %v, the start %v, want ok %v", checked, started, x.ok)
			}
			if checked != nil && started != nil && fault.CodeOf(checked) != fault.CodeOf(started) {
				t.Errorf("the check says %v (%s), the start %v (%s)", checked, fault.CodeOf(checked), started,
					fault.CodeOf(started))
			}
		})
	}
	if st, _ := h.status("m"); !st.Running {
		h.Errorf("it is %+v", st)
	}
}
