package stalls

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
)

const app = "stalls"

// answer is what was said to a verb.
type answer struct {
	code int
	body struct {
		ID       string `json:"id"`
		State    string `json:"state"`
		Error    string `json:"error"`
		ExitCode *int   `json:"exit_code"`
		Begun    *struct {
			Until string `json:"until"`
		} `json:"begun"`
	}
	err error
}

func (a *answer) String() string {
	switch {
	case a.err != nil:
		return "no answer: " + a.err.Error()
	case a.code/100 != 2:
		return fmt.Sprintf("refused, %d: %s", a.code, a.body.Error)
	case a.body.Begun != nil:
		return "begun, until " + a.body.Begun.Until
	}
	return "done"
}

func (a *answer) yes() bool { return a.err == nil && a.code/100 == 2 }

// ask makes one request.
func (s *souk) ask(method, path string, body any, limit time.Duration) (a answer) {
	b, err := json.Marshal(body)
	if err != nil {
		return answer{err: err}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+"/v1/apps"+path, bytes.NewReader(b))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Timeout: limit}).Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	a.code = resp.StatusCode
	if b, a.err = io.ReadAll(resp.Body); a.err == nil {
		a.err = json.Unmarshal(b, &a.body)
	}
	return a
}

// launch is the body of a create or an update. A stubborn program does not end when it is asked to.
func launch(version, name string, stubborn bool) map[string]any {
	argv := []string{"/bin/sleep", "100000"}
	if stubborn {
		argv = []string{"/bin/sh", "-c", `trap "" INT TERM; while :; do sleep 1; done`}
	}
	return map[string]any{"name": name, "config": map[string]any{
		"image": "souk/host", "init": map[string]any{"exec": argv},
		"env":     map[string]string{"WITNESS": "main", "VERSION": version},
		"guest":   map[string]any{"cpu_kind": "shared", "cpus": 1, "memory_mb": 256},
		"restart": map[string]any{"policy": "always"},
	}}
}

// row is one verb under one stall.
type row struct {
	verb     string
	from     string // the state the machine is in before
	stubborn bool
	do       func(s *souk, r *row) answer
	want     string // what is so when it was not refused, in the words of now
	was      string // what is so when it was

	most time.Duration // how long it may take; 0: as long as a verb may

	id       string
	before   seen
	got      answer
	at       string      // what was so when it was answered
	answered atomic.Bool // it has been answered
	after    string
}

func (r *row) path(verb string) string { return "/" + app + "/machines/" + r.id + verb }

// The long waits of clients: an answer comes, however long the stall is.
const clientTime = 3 * time.Minute

func verbs(round string, by int) []*row {
	post := func(verb string, body any) func(*souk, *row) answer {
		return func(s *souk, r *row) answer { return s.ask("POST", r.path(verb), body, clientTime) }
	}
	grace := map[string]any{"timeout": "40s"} // of a souk in haste shorter, as all deadlines
	none := map[string]any{}
	return []*row{
		{verb: "create", want: "started, runs v1", was: "none", do: func(s *souk, r *row) answer {
			a := s.ask("POST", "/"+app+"/machines", launch("v1", "create-"+round, false), clientTime)
			r.id = a.body.ID
			return a
		}},
		{verb: "start", from: "stopped", do: post("/start", none), want: "started, runs v1",
			was: "stopped, nothing runs"},
		{verb: "stop", from: "started", do: post("/stop", none), want: "stopped, nothing runs",
			was: "started, runs v1"},
		{verb: "stop, grace of 40 s", from: "started", stubborn: true, do: post("/stop", grace),
			want: "stopped, nothing runs", was: "started, runs v1"},
		{verb: "restart", from: "started", do: post("/restart", none), want: "started, runs v1 anew",
			was: "started, runs v1"},
		{verb: "update", from: "started", do: post("", launch("v2", "", false)), want: "started, runs v2",
			was: "started, runs v1"},
		{verb: "suspend", from: "started", do: post("/suspend", none), want: "suspended, frozen v1",
			was: "started, runs v1"},
		{verb: "resume", from: "suspended", do: post("/start", none), want: "started, runs v1",
			was: "suspended, frozen v1"},
		{verb: "destroy", from: "started", do: func(s *souk, r *row) answer {
			return s.ask("DELETE", r.path("?kill=true"), nil, clientTime)
		}, want: "destroyed, nothing runs", was: "started, runs v1"},
		{verb: "exec", from: "started", do: post("/exec", map[string]any{
			"command": []string{"/bin/sh", "-c", "echo once >> done"}, "timeout": 60}),
			want: "started, runs v1, run once", was: "started, runs v1"},
		{verb: "exec, at most 10 s", from: "started", most: 10 * time.Second / time.Duration(by),
			do: post("/exec", map[string]any{
				"command": []string{"/bin/sh", "-c", "echo once >> done"}, "timeout": 10 / by}),
			want: "started, runs v1, run once", was: "started, runs v1"},
	}
}

// run makes a machine and returns its id once it is started. The first one waits for a reaper, which on a busy host takes
// longer than souk in haste waits for an answer.
func (s *souk) run(name string, stubborn bool) string {
	s.t.Helper()
	a := s.ask("POST", "/"+app+"/machines", launch("v1", name, stubborn), clientTime)
	if !a.yes() {
		s.t.Fatalf("%s: %v", name, &a)
	}
	r := row{id: a.body.ID}
	waittest.See(s.t, name+" is started", func() string { return s.state(&r) },
		func(is string) bool { return is == "started" })
	return r.id
}

// prepare brings the machines into the states in which the verbs find them.
func (s *souk) prepare(rows []*row, round string) {
	s.t.Helper()
	for k, r := range rows {
		if r.from == "" {
			continue
		}
		r.id = s.run(fmt.Sprintf("m%d-%s", k, round), r.stubborn)
		r.before = look(s.t, r.id)
		if verb := map[string]string{"stopped": "/stop", "suspended": "/suspend"}[r.from]; verb != "" {
			if a := s.ask("POST", r.path(verb), map[string]any{}, clientTime); !a.yes() {
				s.t.Fatalf("%s: %v", r.verb, &a)
			}
		}
	}
}

// now tells what is so of a row's machine: what souk says of it, and what is seen from outside.
func (s *souk) now(r *row) string {
	if r.id == "" {
		return "none"
	}
	state := s.state(r)
	v := look(s.t, r.id)
	text := state + ", nothing runs"
	switch {
	case v.processes > 1:
		text = fmt.Sprintf("%s, %d run", state, v.processes)
	case v.frozen:
		text = state + ", frozen " + v.version
	case v.processes == 1:
		text = state + ", runs " + v.version
	}
	if r.verb == "restart" && v.pid != 0 && v.pid != r.before.pid {
		text += " anew"
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "run", "machines", r.id, "done")); err == nil {
		text += ", run " + strings.Join(strings.Fields(string(b)), " and ")
	}
	return text
}

func (s *souk) state(r *row) string {
	a := s.ask("GET", r.path(""), nil, clientTime)
	switch {
	case a.code == http.StatusNotFound:
		return "destroyed"
	case !a.yes():
		return a.String()
	}
	return a.body.State
}

// watch reports machines that are said to be at rest while they run, until done is closed. A state counts that is the
// same before and after the look, and not before a start is answered: what it has changed is shown with its answer, and
// its process is there before, by as long as the disk takes.
func (s *souk) watch(rows []*row, done <-chan struct{}) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
		}
		for _, r := range rows {
			if r.from == "" {
				continue
			}
			answered := r.answered.Load()
			state := s.state(r)
			if state != "stopped" && state != "failed" && state != "destroyed" || state == r.from && !answered {
				continue
			}
			if v := look(s.t, r.id); v.processes > 0 && s.state(r) == state && look(s.t, r.id).pid == v.pid {
				s.t.Errorf("%s: it is said to be %s while process %d runs", r.verb, state, v.pid)
			}
		}
	}
}

// stallRound has all verbs asked while a process is stopped, and fills the rows.
func (s *souk) stallRound(who string, d time.Duration) []*row {
	s.t.Helper()
	scaled := d / time.Duration(s.haste)
	round := fmt.Sprintf("%s-%d", who, d/time.Second)
	rows := slices.DeleteFunc(verbs(round, s.haste), func(r *row) bool {
		// Where an exec has one second, and the stall takes half of it, the outcome depends on how busy the host is.
		return r.most > 0 && scaled < r.most && r.most < 2*time.Second
	})
	s.prepare(rows, round)
	pid := s.cmd.Process.Pid
	if who == "reaper" {
		pid = s.reaper()
	}
	stop, first := make(chan struct{}), make(chan struct{}, len(rows))
	var asked, watching sync.WaitGroup
	ask := func() {
		for _, r := range rows {
			asked.Go(func() {
				r.got = r.do(s, r)
				r.answered.Store(true)
				first <- struct{}{}
				r.at = s.now(r)
			})
		}
	}
	watching.Go(func() { s.watch(rows, stop) })
	var over <-chan struct{}
	if who == "souk" { // in the middle of them
		ask()
		<-first
		over = s.stall(pid, scaled)
	} else {
		over = s.stall(pid, scaled)
		ask()
	}
	<-over
	asked.Wait()
	s.settle()
	for _, r := range rows { // what was begun is so some time later; what was refused must not become so meanwhile
		r.after = waittest.See(s.t, fmt.Sprintf("%s, answered %v, is %s", r.verb, &r.got, r.wanted()),
			func() string { return s.now(r) }, r.may)
	}
	for _, r := range rows {
		r.after = s.now(r)
	}
	close(stop)
	watching.Wait()
	for _, r := range rows {
		if r.id != "" {
			s.ask("DELETE", r.path("?kill=true"), nil, clientTime)
		}
	}
	return rows
}

// settle waits until the reaper has done what lay in its socket: it serves what comes later.
func (s *souk) settle() {
	s.t.Helper()
	for range 3 {
		a := s.ask("POST", "/"+app+"/machines", launch("v1", "", false), clientTime)
		if a.yes() {
			a = s.ask("DELETE", "/"+app+"/machines/"+a.body.ID+"?kill=true", nil, clientTime)
		}
		if !a.yes() {
			s.t.Fatal(&a)
		}
	}
}

func (r *row) wanted() string {
	if r.got.yes() {
		return r.want
	}
	return r.was
}

// may reports whether a machine may be so by the answer. A command that was killed, as its time was over, may have done
// what it was to do before.
func (r *row) may(now string) bool {
	return now == r.wanted() || r.got.code == http.StatusRequestTimeout && now == r.want
}

// differs reports whether a row is not as it was answered: done means done when it is said, begun means done later.
func (r *row) differs() bool {
	return !r.may(r.after) || r.got.yes() && r.got.body.Begun == nil && r.at != r.want || r.got.err != nil
}

// TestStalledVerbIsDoneOrRefused: with any process stalled for any time, a verb is done when it is answered, or begun
// and done later, or refused and not done.
func TestStalledVerbIsDoneOrRefused(t *testing.T) {
	t.Parallel()
	by := haste
	if *long {
		by = 1
	}
	stopped := []string{"souk", "reaper"}
	tables := make([]strings.Builder, len(stopped))
	t.Run("stopped", func(t *testing.T) {
		for k, who := range stopped {
			t.Run(who, func(t *testing.T) { t.Parallel(); stallAll(t, who, by, &tables[k]) })
		}
	})
	table := "| stopped | for | verb | answered | and so a minute later |\n| --- | --- | --- | --- | --- |\n" +
		tables[0].String() + tables[1].String()
	t.Logf("\n%s", table)
	if *write != "" && !t.Failed() {
		head := "# What a verb answered, and what is so\n\nMade by `go test ./test/stalls -long -write " +
			"../../docs/results-stalls.md`: souk, or the reaper of its\nworker, is stopped (SIGSTOP) while all verbs " +
			"are under way. What is so is seen from outside: the processes and their cgroups.\n\n"
		if err := os.WriteFile(*write, []byte(head+table), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// stallAll stops souk, or its reaper, for all times, and writes the rows into a table.
func stallAll(t *testing.T, who string, by int, table *strings.Builder) {
	s := start(t, by)
	if a := s.ask("POST", "", map[string]any{"app_name": app, "org_slug": "personal"}, clientTime); !a.yes() {
		t.Fatal(&a)
	}
	for _, d := range []time.Duration{5 * time.Second, 25 * time.Second, 45 * time.Second} {
		for _, r := range s.stallRound(who, d) {
			fmt.Fprintf(table, "| %s | %v | %s | %v | %s |\n", who, d, r.verb, &r.got, r.after)
			if r.differs() {
				t.Errorf("%s stopped for %v, %s: answered %v (%s then), and so a minute later: %s; want %s", who, d,
					r.verb, &r.got, r.at, r.after, r.wanted())
			}
		}
	}
}
