package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

const testID = "d891275c2e5118"

func when() time.Time { return time.Date(2026, 11, 21, 1, 2, 3, 4, time.UTC) }

func aRecord() cluster.Record {
	return cluster.Record{Worker: "w1", Region: "iad", State: cluster.Ready, Incarnation: 3, Version: 1 << 60,
		Capacity: cluster.Resources{CPU: 4000, Memory: 8192, Named: map[string]int64{"gpu.a10": 2000}},
		Used:     cluster.Resources{CPU: 62},
		Machines: 2, Starting: 1, MaxStarting: 9, Apps: map[string]int{"a": 2}, Images: []string{"i"},
		Volumes: map[string]string{"vol_1": ""}, At: when()}
}

func aMachine() *machine.Machine {
	return &machine.Machine{ID: testID, Name: "n", State: machine.Started, Region: "iad", InstanceID: "I", App: "a",
		Worker: "w1", Nonce: "s", HostStatus: "ok",
		Config: &machine.Config{Image: "souk/host", Env: map[string]string{"A": "<&>\u2028\""},
			Init: machine.Init{Exec: []string{"sleep", "1"}}, Guest: aGuest()},
		Events: []machine.Event{{ID: "E", Type: "exit", Timestamp: 7,
			Request: &machine.EventRequest{ExitEvent: &machine.ExitEvent{ExitCode: 137, ExitedAt: when()}}}}}
}

// TestEveryCallRoundTrips: each question reaches the worker as it was asked, and each answer comes back as it was given.
func TestEveryCallRoundTrips(t *testing.T) {
	k := newStub()
	w, ctx := far(t, k), t.Context()
	req := placement.Request{App: "a", Machine: testID, Regions: []cluster.Region{"iad", "any"},
		Resources: machine.Resources(aMachine().Config), Image: "i", Volumes: []string{"v"}, Start: true}
	launch := &machine.Launch{Name: "n", Config: aMachine().Config, LeaseTTL: 4, SkipLaunch: true}
	value := "v"
	grant := lifecycle.Grant{Request: req, Hold: "h", Launch: launch, Region: "iad", Source: "user",
		Placement: &machine.Placement{Policy: "p",
			Candidates: []machine.Candidate{{Worker: "w1", Fits: true, Score: 0.1,
				Terms: machine.Terms{{Name: "x", Value: 0.1}}}}}}
	command := lifecycle.Command{Verb: lifecycle.Update, App: "a", Machine: testID, Nonce: "x", Timeout: time.Minute,
		Launch:    launch,
		Resources: &req.Resources, Metadata: map[string]*string{"set": &value, "delete": nil}}
	lease := lifecycle.LeaseCommand{App: "a", Machine: testID, TTL: time.Second, Owner: "o", Release: true}
	volume := lifecycle.VolumeCommand{Verb: "extend", App: "a", Volume: "vol_1", Spec: machine.Volume{SizeGB: 3}}
	quote := market.Quote{Record: aRecord(),
		Verdict: placement.Verdict{Never: true, Failing: []machine.Clause{{Code: "cpu", Wanted: "1", Had: "0"}}}}
	term := cluster.Term{Number: 7, Member: "w2"}
	held := machine.Lease{Nonce: "n", ExpiresAt: 1 << 40, Owner: "o"}
	vol := machine.Volume{ID: "vol_1", SizeGB: 3, CreatedAt: when(), AttachedMachine: &value}
	stats := lifecycle.Stats{Record: aRecord(), States: map[machine.State]int{machine.Started: 2}, Commits: 7,
		CommitTime: time.Second, Refusals: map[string]uint64{"cpu": 1}}
	for _, c := range []struct {
		call           string
		question, give any
		ask            func() (any, error)
	}{
		{"Record", nil, aRecord(), func() (any, error) { return w.Record(ctx) }},
		{"Quote", req, quote, func() (any, error) { return w.Quote(ctx, req) }},
		{"Hold", lifecycle.HoldCommand{Request: req, Token: "tok", TTL: time.Second, By: "g1"}, when(),
			func() (any, error) {
				return w.Hold(ctx, lifecycle.HoldCommand{Request: req, Token: "tok", TTL: time.Second})
			}},
		{"Release", "tok", nil, func() (any, error) { return nil, w.Release(ctx, "tok") }},
		{"Cordon", lifecycle.CordonCommand{Owner: "o", Reason: "r"}, aRecord(), func() (any, error) {
			return w.Cordon(ctx, lifecycle.CordonCommand{Owner: "o", Reason: "r"})
		}},
		{"Grant", grant, aMachine(), func() (any, error) { return w.Grant(ctx, grant) }},
		{"Do", command, lifecycle.Outcome{Machine: aMachine(), Previous: machine.Stopped},
			func() (any, error) { return w.Do(ctx, command) }},
		{"Lease", lease, held, func() (any, error) { return w.Lease(ctx, lease) }},
		{"Obey", termArgs{"a", term}, []lifecycle.Replica{{ID: testID, State: machine.Started,
			Replica: machine.Replica{Group: "web", Epoch: 4096, Spec: "5bec", Release: "1a2b"}}},
			func() (any, error) { return w.Obey(ctx, "a", term) }},
		{"CurrentLease", pair{"a", testID}, held, func() (any, error) { return w.CurrentLease(ctx, "a", testID) }},
		{"Machine", pair{"a", testID}, aMachine(), func() (any, error) { return w.Machine(ctx, "a", testID) }},
		{"Machines", listArgs{"a", true}, []*machine.Machine{aMachine(), aMachine()},
			func() (any, error) { return w.Machines(ctx, "a", true) }},
		{"Keyed", pair{"a", "h"}, aMachine(), func() (any, error) { return w.Keyed(ctx, "a", "h") }},
		{"Versions", pair{"a", testID}, []machine.Version{{Version: "1", Config: *aMachine().Config}},
			func() (any, error) { return w.Versions(ctx, "a", testID) }},
		{"Processes", pair{"a", testID}, []machine.Process{{PID: 7, Command: "c"}},
			func() (any, error) { return w.Processes(ctx, "a", testID) }},
		{"Volumes", "a", []machine.Volume{vol}, func() (any, error) { return w.Volumes(ctx, "a") }},
		{"Volume", volume, vol, func() (any, error) { return w.Volume(ctx, volume) }},
		{"RunningTasks", nil, []lifecycle.Task{{Name: "tj", App: "a", Namespace: "ml",
			Scheduling: machine.Scheduling{Band: machine.BandBatch}, Want: cluster.Resources{CPU: 62}, Since: when()}},
			func() (any, error) { return w.RunningTasks(ctx) }},
		{"Examine", nil, []cluster.Finding{{Name: "n", Have: "h", Advice: "a"}},
			func() (any, error) { return w.Examine(ctx), nil }},
		{"Stats", nil, stats, func() (any, error) { return w.Stats(), nil }},
		{"Logs", logArgs{ref{"a", testID}, "c", new(7), true, true},
			[]machine.LogLine{{Cursor: "1", At: when(), Stream: "stdout", Text: "\x00t"}}, func() (any, error) {
				var got []machine.LogLine
				err := w.Logs(ctx, "a", testID, machine.LogQuery{Cursor: "c", Tail: new(7), Follow: true, Hold: true},
					func(l machine.LogLine) error { got = append(got, l); return nil })
				return got, err
			}},
		{"Watch", pair{"a", testID}, []*machine.Machine{aMachine(), aMachine()}, func() (any, error) {
			var got []*machine.Machine
			err := w.Watch(ctx, "a", testID,
				func(m *machine.Machine) bool { got = append(got, m); return len(got) < 2 })
			return got, err
		}},
	} {
		t.Run(c.call, func(t *testing.T) {
			k.give[c.call] = c.give
			got, err := c.ask()
			must(t, err)
			if d := cmp.Diff(c.give, got); d != "" && c.give != nil {
				t.Errorf("the answer became another: %s", d)
			}
			if d := cmp.Diff(c.question, k.asked[c.call], cmp.AllowUnexported(logArgs{}, holdArgs{})); d != "" {
				t.Errorf("the question became another: %s", d)
			}
			if c.call == "Examine" || c.call == "Stats" {
				return // have no error to give
			}
			k.give[c.call] = fault.New(fault.Conflict, "lease_held", "somebody holds it")
			_, err = c.ask()
			wantFault(t, err, fault.Conflict, "lease_held")
		})
	}
	if list, err := far(t, newStub()).Machines(ctx, "", false); err != nil || list == nil || len(list) != 0 {
		t.Errorf("no machines are %v, %v", list, err)
	}
}

// TestErrorsRoundTrip: every field of every kind, with each detail that goes with one.
func TestErrorsRoundTrip(t *testing.T) {
	k := newStub()
	w := far(t, k)
	clauses := []machine.Clause{{Code: "cpu", Wanted: "2", Had: "1"}}
	details := []any{nil, market.Refusal{Verdict: placement.Verdict{Failing: clauses}, Record: aRecord(),
		RetryAfter: time.Second},
		aRecord(), cluster.Term{Number: 7, Member: "w2"},
		clauses, []machine.Candidate{{Worker: "w", Score: 1}}, "d891275c2e5118"}
	kinds := []fault.Kind{fault.Invalid, fault.Denied, fault.NotFound, fault.Conflict, fault.Precondition,
		fault.Exhausted, fault.Timeout,
		fault.Unimplemented, fault.Unavailable, fault.Internal}
	for _, kind := range kinds {
		for _, d := range details {
			e := &fault.Error{Kind: kind, Code: "code", Op: "op", Text: "one sentence", Scope: fault.ScopeHost,
				Resource: "cpu", RetryAfter: 1500 * time.Millisecond, Detail: d, Err: errors.New("cause")}
			k.give["Machine"] = e
			_, err := w.Machine(t.Context(), "a", testID)
			got, ok := errors.AsType[*fault.Error](err)
			if !ok || got.Error() != e.Error() {
				t.Fatalf("%v became %v", e, err)
			}
			a, b := *e, *got
			a.Err, b.Err = nil, nil
			if !reflect.DeepEqual(a, b) {
				t.Errorf("became another: %s", cmp.Diff(a, b))
			}
		}
	}
	k.give["Machine"] = errors.New("none of ours")
	_, err := w.Machine(t.Context(), "a", testID)
	wantFault(t, err, fault.Internal, "")
	k.give["Machine"] = fault.New(fault.Internal, "", "%s", strings.Repeat("x", 10<<20))
	if _, err = w.Machine(t.Context(), "a", testID); len(err.Error()) > maxSentence+10 {
		t.Errorf("a sentence of %d bytes crossed", len(err.Error()))
	}
	if e := (problem{Kind: "of tomorrow", Text: "t"}).asError(); e.Kind != fault.Internal {
		t.Errorf("an unknown kind became %s", e.Kind)
	}
}

func TestEventStreamEndsWithItsReader(t *testing.T) {
	k := newStub()
	gone := make(chan struct{})
	k.give["Events"] = func(ctx context.Context, f func(machine.EventOf) error) error {
		defer close(gone)
		for i := range 3 {
			if err := f(machine.EventOf{App: "a", Event: machine.Event{ID: fmt.Sprint(i)}}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}
	n, enough := 0, errors.New("enough")
	err := far(t, k).Events(t.Context(), "a", func(machine.EventOf) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 3 {
		t.Errorf("got %v after %d events", err, n)
	}
	<-gone // the worker's part ends too
}

func TestExecStreamsBothWays(t *testing.T) {
	k := newStub()
	w := far(t, k)
	k.give["Exec"] = func(_ context.Context, r runtime.ExecRequest) (int, error) {
		// answers each piece before the next is sent
		buf := make([]byte, 100)
		for {
			n, err := r.Stdin.Read(buf)
			if err == io.EOF {
				_, _ = r.Stderr.Write([]byte("end of " + r.Argv[1]))
				return 7, nil
			}
			if err != nil {
				return 0, err
			}
			if _, err := r.Stdout.Write(bytes.ToUpper(buf[:n])); err != nil {
				return 0, err
			}
		}
	}
	stdin, feed := io.Pipe()
	defer stdin.Close()
	heard, told := io.Pipe()
	var stderr bytes.Buffer
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		code, err := w.Exec(t.Context(), "a", testID, runtime.ExecRequest{Argv: []string{"cat", "x"}, Stdin: stdin,
			Stdout: told, Stderr: &stderr})
		ended <- end{code, err}
	}()
	for _, s := range []string{"one", "two", strings.Repeat("z", 99)} {
		_, err := feed.Write([]byte(s))
		must(t, err)
		got := make([]byte, len(s))
		_, err = io.ReadFull(heard, got)
		must(t, err)
		if string(got) != strings.ToUpper(s) {
			t.Fatalf("got %q for %q", got, s)
		}
	}
	feed.Close()
	if e := <-ended; e.err != nil || e.code != 7 || stderr.String() != "end of x" {
		t.Errorf("got %+v, stderr %q", e, stderr.String())
	}
	// One that ends while its stdin waits for more ends; what it wrote is all there.
	big := bytes.Repeat([]byte("0123456789"), 1<<17)
	k.give["Exec"] = func(_ context.Context, r runtime.ExecRequest) (int, error) {
		_, err := r.Stdout.Write(big)
		return 1, err
	}
	waiting, close2 := io.Pipe()
	defer close2.Close()
	var out bytes.Buffer
	if code, err := w.Exec(t.Context(), "a", testID, runtime.ExecRequest{Argv: []string{"yes"}, Stdin: waiting,
		Stdout: &out}); err != nil || code != 1 {
		t.Error(code, err)
	}
	if !bytes.Equal(out.Bytes(), big) {
		t.Errorf("%d bytes arrived of %d", out.Len(), len(big))
	}
	// The user and the directory arrive, also with a terminal.
	for _, terminal := range []*runtime.Terminal{nil, new(runtime.Terminal)} {
		k.give["Exec"] = func(_ context.Context, r runtime.ExecRequest) (int, error) {
			if r.User != "web:7" || r.Dir != "/srv" || (r.Terminal != nil) != (terminal != nil) {
				return 0, fmt.Errorf("asked for is %+v", r)
			}
			return 5, nil
		}
		if code, err := w.Exec(t.Context(), "a", testID, runtime.ExecRequest{Argv: []string{"id"}, User: "web:7",
			Dir: "/srv", Terminal: terminal}); err != nil || code != 5 {
			t.Error(code, err)
		}
	}
	k.give["Exec"] = fault.New(fault.Precondition, "not_running", "it does not run")
	_, err := w.Exec(t.Context(), "a", testID, runtime.ExecRequest{Argv: []string{"x"}})
	wantFault(t, err, fault.Precondition, "not_running")
}

// TestTerminalInputAndResizesStayInOrder: what is typed and the sizes of the window reach the worker's side in order, and the size does so also
// when nobody types.
func TestTerminalInputAndResizesStayInOrder(t *testing.T) {
	k := newStub()
	w := far(t, k)
	at := machine.Terminal{Size: machine.WindowSize{Rows: 24, Cols: 80}, Term: "vt100"}
	k.give["Exec"] = func(_ context.Context, r runtime.ExecRequest) (int, error) {
		if r.Terminal == nil || r.Terminal.Terminal != at {
			return 0, fmt.Errorf("the terminal is %+v", r.Terminal)
		}
		if is := r.Stdin != nil; r.Attach != is || r.Backlog != is || (len(r.Argv) == 0) != is {
			return 0, fmt.Errorf("asked for is %+v", r)
		}
		if r.Stdin != nil {
			buf := make([]byte, 3)
			if _, err := io.ReadFull(r.Stdin, buf); err != nil || string(buf) != "key" {
				return 0, fmt.Errorf("typed was %q, %v", buf, err)
			}
			go func() { _, _ = io.Copy(io.Discard, r.Stdin) }() // sizes come with it
		}
		fmt.Fprint(r.Stdout, "now")
		size := <-r.Terminal.Resize
		return int(size.Rows) + int(size.Cols), nil
	}
	for _, typing := range []bool{true, false} {
		sizes := make(chan machine.WindowSize)
		shown, out := io.Pipe()
		q := runtime.ExecRequest{Argv: []string{"sh"}, Stdout: out,
			Terminal: &runtime.Terminal{Terminal: at, Resize: sizes}}
		if typing {
			q.Attach, q.Backlog, q.Argv = true, true, nil
			q.Stdin = strings.NewReader("key") // its end is not that of the sizes
		}
		go func() {
			_, _ = io.ReadFull(shown, make([]byte, 3))
			sizes <- machine.WindowSize{Rows: 40, Cols: 60}
		}()
		if code, err := w.Exec(t.Context(), "a", testID, q); err != nil || code != 100 {
			t.Errorf("typing %v: %d, %v", typing, code, err)
		}
	}
}

func TestExecEndsWhenItsCallerLeaves(t *testing.T) {
	k := newStub()
	w := far(t, k)
	ended := make(chan struct{})
	k.give["Exec"] = func(ctx context.Context, r runtime.ExecRequest) (int, error) {
		if r.Stdin != nil { // it is read all the while, as its own program would
			go func() { _, _ = io.Copy(io.Discard, r.Stdin) }()
		}
		fmt.Fprint(r.Stdout, "it runs")
		<-ctx.Done()
		ended <- struct{}{}
		return 0, ctx.Err()
	}
	open, typing := io.Pipe() // it never has anything, and never ends
	defer typing.Close()
	for _, q := range []runtime.ExecRequest{
		{Argv: []string{"x"}},
		{Argv: []string{"x"}, Stdin: open},
		{Argv: []string{"x"}, Stdin: endless{}}, // more than the command takes
		{Argv: []string{"x"}, Stdin: open, Terminal: new(runtime.Terminal)},
		{Attach: true, Stdin: open, Terminal: new(runtime.Terminal)},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		shown, out := io.Pipe()
		q.Stdout = out
		go func() {
			_, _ = io.ReadFull(shown, make([]byte, 7)) // the answer has begun
			cancel()
		}()
		_, err := w.Exec(ctx, "a", testID, q)
		wantFault(t, err, fault.Unavailable, "cancelled")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not say that the caller's context ended", err)
		}
		<-ended
	}
}

// endless is a stdin that always has something.
type endless struct{}

// Read gives what was there.
func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestCopiesStreamWholeOrFail(t *testing.T) {
	k := newStub()
	w, ctx := far(t, k), t.Context()
	big := bytes.Repeat([]byte("tar"), 1<<20)
	k.give["CopyOut"] = func(o io.Writer) error { _, err := o.Write(big); return err }
	var got bytes.Buffer
	must(t, w.CopyOut(ctx, "a", testID, "/ä ö?&", &got))
	if !bytes.Equal(got.Bytes(), big) {
		t.Errorf("%d bytes of %d came", got.Len(), len(big))
	}
	if a := k.asked["CopyOut"]; a != (pathArgs{ref{"a", testID}, "/ä ö?&"}) {
		t.Errorf("asked for %v", a)
	}
	k.give["CopyOut"] = func(o io.Writer) error {
		_, _ = o.Write(big)
		return fault.New(fault.Unavailable, "disk", "the disk broke")
	}
	wantFault(t, w.CopyOut(ctx, "a", testID, "/", io.Discard), fault.Unavailable, "disk")
	k.give["CopyOut"] = func(io.Writer) error { return fault.New(fault.NotFound, "path", "no such path") }
	wantFault(t, w.CopyOut(ctx, "a", testID, "/", io.Discard), fault.NotFound, "path")
	k.give["CopyOut"] = func(io.Writer) error { return nil }
	must(t, w.CopyOut(ctx, "a", testID, "/", io.Discard))

	got.Reset()
	k.give["CopyIn"] = func(r io.Reader) error { _, err := got.ReadFrom(r); return err }
	must(t, w.CopyIn(ctx, "a", testID, "/ä ö?&", bytes.NewReader(big)))
	if a := k.asked["CopyIn"]; !bytes.Equal(got.Bytes(), big) || a != (pathArgs{ref{"a", testID}, "/ä ö?&"}) {
		t.Errorf("%d bytes of %d arrived at %v", got.Len(), len(big), a)
	}
	broken, noticed := errors.New("the reader broke"), make(chan error, 1)
	k.give["CopyIn"] = func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		noticed <- err
		return err
	}
	if err := w.CopyIn(ctx, "a", testID, "/",
		io.MultiReader(strings.NewReader("x"), failingReader{broken})); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := <-noticed; err == nil {
		t.Error("half a tar looked whole to the worker")
	}
	k.give["CopyIn"] = func(io.Reader) error { return fault.New(fault.NotFound, "path", "no such path") }
	wantFault(t, w.CopyIn(ctx, "a", testID, "/", bytes.NewReader(big)), fault.NotFound, "path")
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// TestRefusedCopyStopsReadingItsSource: an answer does not wait for a tar that nobody wants.
func TestRefusedCopyStopsReadingItsSource(t *testing.T) {
	k := newStub()
	k.give["CopyIn"] = func(io.Reader) error { return fault.New(fault.NotFound, "path", "no such path") }
	stalled, feed := io.Pipe()
	defer feed.Close()
	wantFault(t, far(t, k).CopyIn(t.Context(), "a", testID, "/", stalled), fault.NotFound, "path")
}
