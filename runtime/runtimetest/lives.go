package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

func testFresh(h *harness) {
	ctx := h.ctx()
	s := spec("fresh", 1, "sleep", "1000")
	s.Fresh = true
	for range 2 { // the second time it runs already
		st, err := h.rt.Start(ctx, s)
		h.ok(err)
		if !st.Running || st.Attempt != 1 {
			h.Fatalf("%+v", st)
		}
	}
	h.ok(h.rt.Remove(ctx, "fresh"))
}

func testAckAll(h *harness) {
	ctx := h.ctx()
	many, ok := h.rt.(runtime.Acker)
	if !ok {
		return
	}
	var exits []runtime.Exit
	for _, id := range []string{"one", "two", "three"} {
		h.ok(h.rt.Prepare(ctx, spec(id, 0, "true")))
		_, err := h.rt.Start(ctx, spec(id, 1, "true"))
		h.ok(err)
	}
	for range 3 {
		select {
		case x := <-h.rt.Exits():
			exits = append(exits, x)
		case <-ctx.Done():
			h.Fatal("not all exits came")
		}
	}
	h.ok(many.AckAll(ctx, append(exits, runtime.Exit{Machine: "ghost", Attempt: 1})))
	all, err := h.rt.List(ctx)
	h.ok(err)
	for _, st := range all {
		if st.Exit != nil {
			h.Fatalf("the exit of %s is kept", st.Machine)
		}
		h.ok(h.rt.Remove(ctx, st.Machine))
	}
}

// testRemoveAll: one runs, one was only prepared, one is unknown; and with one that cannot be removed the others are.
func testRemoveAll(h *harness) {
	ctx := h.ctx()
	many, ok := h.rt.(runtime.Remover)
	if !ok {
		return
	}
	for _, with := range []string{"ghost", "../ghost"} {
		h.ok(h.rt.Prepare(ctx, spec("runs", 0, "sleep", "1000")))
		_, err := h.rt.Start(ctx, spec("runs", 1, "sleep", "1000"))
		h.ok(err)
		h.ok(h.rt.Prepare(ctx, spec("still", 0, "true")))
		err = many.RemoveAll(ctx, []string{"runs", with, "still"})
		if with == "ghost" {
			h.ok(err)
		} else if err == nil {
			h.Fatalf("%s was removed", with)
		}
		if all, err := h.rt.List(ctx); err != nil || len(all) > 0 {
			h.Fatalf("%+v, %v; want no machine", all, err)
		}
	}
}

func testUnknown(h *harness) {
	ctx := h.ctx()
	_, err := h.rt.Start(ctx, spec("ghost", 1, "true"))
	h.want(err, fault.NotFound)
	h.want(h.rt.Signal(ctx, "ghost", syscall.SIGTERM), fault.NotFound)
	_, err = h.rt.Exec(ctx, "ghost", runtime.ExecRequest{Argv: []string{"true"}})
	h.want(err, fault.NotFound)
	_, err = h.rt.Processes(ctx, "ghost")
	h.want(err, fault.NotFound)
	h.want(h.rt.Logs(ctx, "ghost", machine.LogQuery{}, nil), fault.NotFound)
	h.want(h.rt.Logs(ctx, "ghost", machine.LogQuery{Follow: true}, nil), fault.NotFound)
	h.ok(h.rt.Kill(ctx, "ghost"))
	h.ok(h.rt.Remove(ctx, "ghost"))
	h.ok(h.rt.Ack(ctx, "ghost", 1))
	if p, ok := h.rt.(runtime.Pauser); ok {
		h.want(p.Pause(ctx, "ghost"), fault.NotFound)
		h.want(p.Resume(ctx, "ghost"), fault.NotFound)
	}
	if m, ok := h.rt.(runtime.Meter); ok {
		_, err := m.Usage(ctx, "ghost")
		h.want(err, fault.NotFound)
	}
	all, err := h.rt.List(ctx)
	h.ok(err)
	if len(all) > 0 {
		h.Errorf("List gives %+v", all)
	}
}

func testNames(h *harness) {
	for _, id := range []string{"", ".", "..", "../x", "a/b", "A", "a b", "a\x00", "ü", string(make([]byte, 65)),
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		s := spec(id, 1, "true")
		h.want(h.rt.Prepare(h.ctx(), s), fault.Invalid)
		_, err := h.rt.Start(h.ctx(), s)
		h.want(err, fault.Invalid)
		h.want(h.rt.Remove(h.ctx(), id), fault.Invalid)
		h.want(h.rt.Kill(h.ctx(), id), fault.Invalid)
		h.want(h.rt.Logs(h.ctx(), id, machine.LogQuery{}, nil), fault.Invalid)
	}
	if h.rt.Name() == "" {
		h.Error("no name")
	}
	err := h.rt.CanRun("no such/image at all", "")
	h.want(err, fault.Invalid)
	if fault.CodeOf(err) != machine.CodeImage {
		h.Errorf("code %q, want image", fault.CodeOf(err))
	}
}

func testPrepare(h *harness) {
	s := spec("m", 0)
	h.ok(h.rt.Prepare(h.ctx(), s))
	h.ok(h.rt.Prepare(h.ctx(), s))
	want := runtime.Status{Machine: "m"}
	if st, ok := h.status("m"); !ok || !cmp.Equal(st, want) {
		h.Errorf("status %+v, want %+v", st, want)
	}
	h.reopen()
	if st, ok := h.status("m"); !ok || !cmp.Equal(st, want) {
		h.Errorf("after a restart: status %+v, want %+v", st, want)
	}
	_, err := h.rt.Start(h.ctx(), spec("m", 0, "true"))
	h.want(err, fault.Invalid)
	_, err = h.rt.Start(h.ctx(), spec("m", 1))
	h.want(err, fault.Invalid)
}

func testStartIdempotent(h *harness) {
	s := spec("m", 1, "sleep", "1000")
	first := h.start(s)
	if !first.Running || first.PID == 0 || first.Attempt != 1 || first.StartedAt.IsZero() {
		h.Errorf("first answer %+v", first)
	}
	for range 3 {
		again, err := h.rt.Start(h.ctx(), s)
		h.ok(err)
		if d := cmp.Diff(first, again); d != "" {
			h.Errorf("the same start answers otherwise (-first +again):\n%s", d)
		}
	}
	h.reopen()
	again, err := h.rt.Start(h.ctx(), s)
	h.ok(err)
	if d := cmp.Diff(first.PID, again.PID); d != "" {
		h.Errorf("after a restart the same start answers otherwise:\n%s", d)
	}
	ps := h.begun("m")
	if len(ps) != h.processes(1) {
		h.Errorf("%d processes, want 1: %+v", len(ps), ps)
	}
}

func testStartAfterExit(h *harness) {
	s := sh("m", 1, "exit 3")
	h.start(s)
	h.exitOf("m", 1)
	for _, acked := range []bool{false, true} {
		if acked {
			h.ok(h.rt.Ack(h.ctx(), "m", 1))
		}
		st, err := h.rt.Start(h.ctx(), s)
		h.ok(err)
		if st.Running || st.Attempt != 1 || st.PID != 0 {
			h.Errorf("acked=%v: the start of an ended attempt answers %+v", acked, st)
		}
		if (st.Exit == nil) != acked || st.Exit != nil && st.Exit.Code != 3 {
			h.Errorf("acked=%v: exit %+v", acked, st.Exit)
		}
	}
	h.noExit()
	h.reopen()
	st, err := h.rt.Start(h.ctx(), s)
	h.ok(err)
	if st.Running || st.Attempt != 1 {
		h.Errorf("after a restart the start of an ended attempt answers %+v", st)
	}
}

func testOneLife(h *harness) {
	h.start(spec("m", 5, "sleep", "1000"))
	_, err := h.rt.Start(h.ctx(), spec("m", 6, "sleep", "1000"))
	h.want(err, fault.Conflict)
	_, err = h.rt.Start(h.ctx(), spec("m", 4, "sleep", "1000"))
	h.want(err, fault.Conflict)
	h.ok(h.rt.Kill(h.ctx(), "m"))
	h.exitOf("m", 5)
	h.ok(h.rt.Ack(h.ctx(), "m", 5))
	_, err = h.rt.Start(h.ctx(), spec("m", 4, "sleep", "1000"))
	h.want(err, fault.Conflict)
	h.reopen()
	_, err = h.rt.Start(h.ctx(), spec("m", 4, "sleep", "1000"))
	h.want(err, fault.Conflict)
	st, err := h.rt.Start(h.ctx(), spec("m", 7, "sleep", "1000")) // attempts may be skipped
	h.ok(err)
	if !st.Running || st.Attempt != 7 {
		h.Errorf("status %+v", st)
	}
}

func testNoSuchProgram(h *harness) {
	s := spec("m", 1, "/no/such/program")
	h.ok(h.rt.Prepare(h.ctx(), s))
	_, err := h.rt.Start(h.ctx(), s)
	h.want(err, fault.Precondition, fault.Invalid)
	if st, _ := h.status("m"); st.Running || st.Exit != nil || st.Attempt != 0 {
		h.Errorf("a failed start leaves %+v", st)
	}
	st, err := h.rt.Start(h.ctx(), spec("m", 1, "sleep", "1000")) // attempt 1 never ran, so it may be tried again
	h.ok(err)
	if !st.Running {
		h.Errorf("status %+v", st)
	}
}

func testExitCodes(h *harness) {
	for i, c := range []struct {
		argv []string
		code int
	}{
		{[]string{"true"}, 0}, {[]string{"false"}, 1}, {[]string{"sh", "-c", "exit 3"}, 3},
		{[]string{"sh", "-c", "exit 255"}, 255},
		{[]string{"sleep", "0.01"}, 0},
	} {
		id := fmt.Sprintf("m%d", i)
		before := time.Now().Add(-time.Second)
		h.start(spec(id, 1, c.argv...))
		x := h.exitOf(id, 1)
		if x.At.Before(before) || x.At.After(time.Now().Add(time.Second)) {
			h.Errorf("%v ended at %v", c.argv, x.At)
		}
		x.At, x.CPU, x.MaxRSS = time.Time{}, 0, 0
		if d := cmp.Diff(runtime.Exit{Machine: id, Attempt: 1, Code: c.code}, x); d != "" {
			h.Errorf("%v (-want +got):\n%s", c.argv, d)
		}
	}
}

func testExitsWaitForAck(h *harness) {
	h.start(sh("m", 1, "exit 3"))
	first := h.exitOf("m", 1)
	if st, _ := h.status("m"); st.Running || st.Exit == nil || st.Exit.Code != 3 {
		h.Errorf("status %+v", st)
	}
	h.reopen()
	if again := h.exitOf("m", 1); !again.At.Equal(first.At) || again.Code != 3 {
		h.Errorf("delivered again as %+v, first as %+v", again, first)
	}
	h.ok(h.rt.Ack(h.ctx(), "m", 1))
	h.ok(h.rt.Ack(h.ctx(), "m", 1))
	h.ok(h.rt.Ack(h.ctx(), "m", 9))
	if st, _ := h.status("m"); st.Exit != nil || st.Attempt != 1 {
		h.Errorf("after the acknowledgement: %+v", st)
	}
	h.reopen()
	h.noExit()
	// An exit that is not acknowledged does not delay the next attempt, and both are kept.
	h.start(sh("m", 2, "exit 4"))
	h.exitOf("m", 2)
	h.start(sh("m", 3, "exit 5"))
	h.exitOf("m", 3)
	h.reopen()
	got := map[uint64]int{}
	for range 2 {
		x := h.exit()
		got[x.Attempt] = x.Code
	}
	if d := cmp.Diff(map[uint64]int{2: 4, 3: 5}, got); d != "" {
		h.Errorf("exits after a restart (-want +got):\n%s", d)
	}
}

func testExitsWhileDown(h *harness) {
	h.start(sh("m", 1, "sleep 0.2; exit 7"))
	old := h.rt
	h.ok(old.Close())
	time.Sleep(300 * time.Millisecond) // nobody is there to be told: there is no event
	h.reopen()
	if x := h.exitOf("m", 1); x.Code != 7 || x.Lost {
		h.Errorf("exit %+v, want code 7", x)
	}
}

func testLivesGoOn(h *harness) {
	st := h.start(sh("m", 1, "echo hello; exec sleep 1000"))
	for range 2 {
		h.reopen()
		now, ok := h.status("m")
		if !ok || now.PID != st.PID || !now.Running || now.Attempt != 1 || !now.StartedAt.Equal(st.StartedAt) {
			h.Errorf("after a restart: %+v, before: %+v", now, st)
		}
	}
	h.until("its output is there, once",
		func() bool { return slices.Equal(h.texts("m", machine.LogQuery{}), []string{"hello"}) })
	h.noExit()
	h.ok(h.rt.Kill(h.ctx(), "m"))
	h.exitOf("m", 1)
}

func testSignal(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	h.want(h.rt.Signal(h.ctx(), "m", 65), fault.Invalid)
	h.want(h.rt.Signal(h.ctx(), "m", -9), fault.Invalid)
	h.ok(h.rt.Signal(h.ctx(), "m", syscall.SIGTERM))
	x := h.exitOf("m", 1)
	if x.Code != 143 || x.Signal != 15 && !h.OwnPIDs || x.OOM || x.Lost {
		h.Errorf("exit %+v, want 143 by signal 15", x)
	}
	h.want(h.rt.Signal(h.ctx(), "m", syscall.SIGTERM), fault.Precondition)
	h.start(spec("m", 2, "sleep", "1000"))
	h.ok(h.rt.Signal(h.ctx(), "m", 0))
	if x := h.exitOf("m", 2); x.Code != 130 || x.Signal != 2 && !h.OwnPIDs {
		h.Errorf("exit %+v, want 130 by signal 2", x)
	}
}

func testKill(h *harness) {
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	h.ok(h.rt.Kill(h.ctx(), "m"))
	h.start(spec("m", 1, "sleep", "1000"))
	h.ok(h.rt.Kill(h.ctx(), "m"))
	h.ok(h.rt.Kill(h.ctx(), "m"))
	if x := h.exitOf("m", 1); x.Code != 137 || x.Signal != 9 || x.OOM {
		h.Errorf("exit %+v, want 137 by signal 9", x)
	}
	if st, ok := h.status("m"); !ok || st.Running {
		h.Errorf("status %+v", st)
	}
}

func testRemove(h *harness) {
	s := spec("m", 3, "sleep", "1000")
	h.start(s)
	h.ok(h.rt.Remove(h.ctx(), "m"))
	h.ok(h.rt.Remove(h.ctx(), "m"))
	if st, ok := h.status("m"); ok {
		h.Errorf("after Remove: %+v", st)
	}
	_, err := h.rt.Start(h.ctx(), s)
	h.want(err, fault.NotFound)
	h.reopen()
	if st, ok := h.status("m"); ok {
		h.Errorf("after Remove and a restart: %+v", st)
	}
	s.Attempt = 1 // nothing is remembered
	if st := h.start(s); !st.Running {
		h.Errorf("status %+v", st)
	}
	h.ok(h.rt.Remove(h.ctx(), "m"))
}

func testPause(h *harness) {
	p, ok := h.rt.(runtime.Pauser)
	if !ok {
		h.Skip("it cannot suspend")
	}
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	h.want(p.Pause(h.ctx(), "m"), fault.Precondition)
	h.start(spec("m", 1, "sleep", "1000"))
	h.ok(p.Resume(h.ctx(), "m")) // it is not suspended: nothing to do
	h.ok(p.Pause(h.ctx(), "m"))
	h.ok(p.Pause(h.ctx(), "m"))
	if st, _ := h.status("m"); !st.Paused || !st.Running {
		h.Errorf("status %+v, want paused", st)
	}
	_, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"true"}})
	h.want(err, fault.Precondition)
	h.reopen()
	if st, _ := h.status("m"); !st.Paused {
		h.Errorf("after a restart: %+v, want paused", st)
	}
	p, _ = h.rt.(runtime.Pauser)
	h.ok(p.Resume(h.ctx(), "m"))
	h.ok(p.Resume(h.ctx(), "m"))
	if st, _ := h.status("m"); st.Paused || !st.Running {
		h.Errorf("status %+v, want running", st)
	}
	h.ok(p.Pause(h.ctx(), "m"))
	h.ok(h.rt.Kill(h.ctx(), "m")) // a suspended machine can be killed
	if x := h.exitOf("m", 1); x.Signal != 9 {
		h.Errorf("exit %+v", x)
	}
	h.want(p.Resume(h.ctx(), "m"), fault.Precondition)
}

func testResize(h *harness) {
	r, ok := h.rt.(runtime.Resizer)
	if !ok {
		h.Skip("it cannot resize")
	}
	of := func(attempt uint64, cpu, memory int64) runtime.Spec {
		s := spec("m", attempt, "sleep", "1000")
		s.Resources.CPU, s.Resources.Memory = cpu, memory
		return s
	}
	h.want(r.Resize(h.ctx(), of(1, 500, 64)), fault.NotFound)
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	h.want(r.Resize(h.ctx(), of(1, 500, 64)), fault.Precondition)
	st := h.start(of(1, 1000, 64))
	for _, to := range []runtime.Spec{of(1, 500, 128), of(1, 500, 128), of(1, 3000, 32), of(1, 1000, 64)} {
		h.ok(r.Resize(h.ctx(), to))
	}
	h.want(r.Resize(h.ctx(), of(2, 500, 128)), fault.Precondition) // the attempt of another life
	h.want(r.Resize(h.ctx(), of(1, 0, 128)), fault.Invalid)
	h.want(r.Resize(h.ctx(), of(1, 500, -1)), fault.Invalid)
	h.reopen()
	r, _ = h.rt.(runtime.Resizer)
	shared := of(1, 500, 128)
	shared.SharedCPU = true
	h.ok(r.Resize(h.ctx(), shared))
	if now, _ := h.status("m"); !now.Running || now.PID != st.PID || now.Attempt != 1 {
		h.Errorf("it is another life: %+v, was %+v", now, st)
	}
	if p, can := h.rt.(runtime.Pauser); can { // a suspended one too
		h.ok(p.Pause(h.ctx(), "m"))
		h.ok(r.Resize(h.ctx(), of(1, 600, 64)))
		h.ok(p.Resume(h.ctx(), "m"))
	}
	h.ok(h.rt.Kill(h.ctx(), "m"))
	h.exitOf("m", 1)
	err := r.Resize(h.ctx(), of(1, 500, 64))
	if h.want(err, fault.Precondition); fault.CodeOf(err) != fault.CodeNotRunning {
		h.Errorf("of one that has ended: %v", err)
	}
}

func testCancelled(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	_, err := h.rt.Exec(ctx, "m", runtime.ExecRequest{Argv: []string{"true"}})
	h.want(err, fault.Timeout)
	h.ok(h.rt.Logs(ctx, "m", machine.LogQuery{Follow: true}, func(machine.LogLine) error { return nil }))
	if st, _ := h.status("m"); !st.Running {
		h.Errorf("status %+v", st)
	}
}

func testMany(h *harness) {
	const n = 40
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("m%d", i)
			s := sh(id, 1, fmt.Sprintf("exit %d", i))
			if err := h.rt.Prepare(h.ctx(), s); err != nil {
				h.Error(err)
			}
			for range 2 {
				if _, err := h.rt.Start(h.ctx(), s); err != nil {
					h.Error(err)
				}
			}
		})
	}
	got := map[string]int{}
	for len(got) < n {
		x := h.exit()
		got[x.Machine] = x.Code
	}
	wg.Wait()
	for i := range n {
		if id := fmt.Sprintf("m%d", i); got[id] != i {
			h.Errorf("%s ended with %d, want %d", id, got[id], i)
		}
		h.ok(h.rt.Remove(h.ctx(), fmt.Sprintf("m%d", i)))
	}
}
