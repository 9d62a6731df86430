package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/space"
)

// bootLine is a line of the lives file that says that the host went down meanwhile and came up again.
func bootLine(id string) []byte {
	text := fmt.Sprintf(`{"k":"boot","id":%q}`, id)
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE([]byte(text)), text)
}

func next(t testing.TB, r *process.Runtime, machine string) runtime.Exit {
	t.Helper()
	for {
		select {
		case x := <-r.Exits():
			if x.Machine == machine {
				return x
			}
		case <-time.After(waittest.Patience):
			t.Fatalf("no exit of %s came", machine)
		}
	}
}

func start(t testing.TB, r *process.Runtime, s runtime.Spec) runtime.Status {
	t.Helper()
	if err := r.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	st, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func script(id string, attempt uint64, text string) runtime.Spec {
	return limited(id, attempt, "/bin/sh", "-c", text)
}

func texts(t testing.TB, r *process.Runtime, id string) []string {
	t.Helper()
	var out []string
	if err := r.Logs(t.Context(), id, machine.LogQuery{},
		func(l machine.LogLine) error { out = append(out, l.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// reaperPID finds the reaper of a directory by its environment.
func reaperPID(t testing.TB, dir string) int {
	t.Helper()
	all, err := proc.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		env, err := proc.Environ(s.PID)
		if err == nil && s.State != 'Z' && slices.Contains(env, "SOUK_REAPER_DIR="+dir) {
			return s.PID
		}
	}
	t.Fatal("there is no reaper")
	return 0
}

// killReaper sends the reaper SIGKILL and waits until another has taken over.
func killReaper(t testing.TB, dir string) {
	t.Helper()
	old := reaperPID(t, dir)
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the reaper has ended", func() bool {
		s, err := proc.Read(old)
		return err != nil || s.State == 'Z'
	})
}

// TestReaperKillLosesNothing: machines do not notice that the reaper is killed, and nothing of them is lost.
func TestReaperKillLosesNothing(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "process"))
			o.NoCgroups = noCgroups
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			ticker := start(t, r, script("ticker", 1, `i=0; while :; do i=$((i+1)); echo $i; sleep 0.005; done`))
			if err := r.Prepare(t.Context(), limited("coded", 0)); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(filepath.Join(reaper.RootDir(o.Dir, "coded"), "go"), 0o666); err != nil {
				t.Fatal(err)
			}
			coded := start(t, r, script("coded", 1, `read x < go; exit 42`))
			killed := start(t, r, limited("killed", 1, lasting...))
			start(t, r, script("over", 1, `exit 6`))
			next(t, r, "over")
			for range 2 {
				killReaper(t, o.Dir)
				all, err := r.List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				pids := map[string]int{}
				for _, s := range all {
					pids[s.Machine] = s.PID
					if s.StartedAt.IsZero() {
						t.Errorf("when %s was started is forgotten", s.Machine)
					}
				}
				if pids["ticker"] != ticker.PID || pids["coded"] != coded.PID || pids["killed"] != killed.PID ||
					len(all) != 4 {
					t.Fatalf("after kill -9 of the reaper: %+v", all)
				}
				n := len(texts(t, r, "ticker"))
				waittest.See(t, "output goes on", func() int { return len(texts(t, r, "ticker")) },
					func(lines int) bool { return lines > n+10 })
				var out bytes.Buffer
				code, err := r.Exec(t.Context(), "ticker",
					runtime.ExecRequest{Argv: []string{"sh", "-c", "echo $FLY_MACHINE_ID"}, Stdout: &out})
				if err != nil || code != 0 || out.String() != "ticker\n" {
					t.Errorf("exec in an adopted machine: %d, %v, %q", code, err, &out)
				}
				if x := next(t, r, "over"); x.Code != 6 {
					t.Errorf("the exit from before is delivered again as %+v", x)
				}
			}
			for i, l := range texts(t, r, "ticker") {
				if l != strconv.Itoa(i+1) {
					t.Fatalf("line %d is %q: output was lost or doubled", i+1, l)
				}
			}
			endings(t, r, o)
		})
	}
}

// endings ends the adopted machines of TestReaperKillLosesNothing in three ways.
func endings(t *testing.T, r *process.Runtime, o process.Options) {
	f, err := os.OpenFile(filepath.Join(reaper.RootDir(o.Dir, "coded"), "go"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("go\n")
	_ = f.Close()
	x := next(t, r, "coded")
	switch {
	case reaper.HasExitInfo() && (x.Lost || x.Code != 42):
		t.Errorf("exit %+v, want code 42", x)
	case !reaper.HasExitInfo() && !x.Lost && x.Code != 42:
		t.Errorf("exit %+v, want code 42 or lost", x)
	}
	if err := r.Signal(t.Context(), "killed", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if x := next(t, r, "killed"); reaper.HasExitInfo() && x.Signal != 15 {
		t.Errorf("exit %+v, want signal 15", x)
	}
	if err := r.Remove(t.Context(), "ticker"); err != nil {
		t.Fatal(err)
	}
}

// TestUnwatchedEndIsReportedLost: the reaper is dead when the machine ends, so how it ended is not known, and said so.
func TestUnwatchedEndIsReportedLost(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	st := start(t, r, limited("m", 1, lasting...))
	pid := reaperPID(t, o.Dir)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []int{pid, st.PID} {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "both have ended", func() bool {
		return !alive(pid) && !alive(st.PID)
	})
	r = reopen(t, o)
	x := next(t, r, "m")
	if !x.Lost && x.Code != 137 || x.Lost && x.Code != -1 {
		t.Errorf("exit %+v, want lost with code -1, or 137 where the kernel still tells", x)
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Running {
		t.Errorf("%+v, %v", all, err)
	}
	again := limited("m", 2, lasting...)
	if st := start(t, r, again); !st.Running {
		t.Errorf("%+v", st)
	}
}

func alive(pid int) bool {
	s, err := proc.Read(pid)
	return err == nil && s.State != 'Z'
}

// TestRebootLosesEveryLife: a lives file from before the host went down makes every life lost, whatever has its pid now.
func TestRebootLosesEveryLife(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	st := start(t, r, limited("m", 1, lasting...))
	pid := reaperPID(t, o.Dir)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the reaper has ended", func() bool { return !alive(pid) })
	lives := filepath.Join(o.Dir, "lives")
	b, err := os.ReadFile(lives)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lives, append(b, bootLine("another boot")...), 0o600); err != nil {
		t.Fatal(err)
	}
	r = reopen(t, o)
	if x := next(t, r, "m"); !x.Lost || x.Code != -1 {
		t.Errorf("exit %+v, want lost", x)
	}
	if os.Geteuid() == 0 && alive(st.PID) { // by its cgroup it is known to belong to nothing
		t.Errorf("process %d was left", st.PID)
	}
	_ = syscall.Kill(st.PID, syscall.SIGKILL)
}

// TestAnsweredStartsSurviveClientKill: souk is killed with starts under way; every start that was answered is there afterwards, each once.
func TestAnsweredStartsSurviveClientKill(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	started := map[string]int{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHelperStartsMachines$")
		cmd.Env = append(os.Environ(), "SOUK_TEST_STARTS="+o.Dir, "SOUK_TEST_ROUND="+strconv.Itoa(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(out)
		for range 10 + 3*round {
			var s runtime.Status
			if err := dec.Decode(&s); err != nil {
				t.Fatal(err)
			}
			started[s.Machine] = s.PID
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	r := reopen(t, o)
	// What had been asked for when souk was killed is still being done: it is over when processes and list agree.
	running := map[string]int{}
	waittest.Until(t, "as many processes run as machines", func() bool {
		all, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clear(running)
		for _, s := range all {
			if s.Running && alive(s.PID) {
				running[s.Machine] = s.PID
			}
		}
		return len(proc.Below(0, reaperPID(t, o.Dir), o.Dir, space.Machines)) == len(running)
	})
	for m, pid := range started {
		if running[m] != pid {
			t.Errorf("%s was answered as %d and is now %d", m, pid, running[m])
		}
	}
	if len(started) < 40 {
		t.Errorf("only %d starts were answered", len(started))
	}
}

// TestHelperStartsMachines is the souk of TestAnsweredStartsSurviveClientKill: it starts machines until it is killed.
func TestHelperStartsMachines(t *testing.T) {
	dir := os.Getenv("SOUK_TEST_STARTS")
	if dir == "" {
		t.Skip("not a test of its own")
	}
	r, err := process.Open(options(dir))
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(os.Stdout)
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				s := limited(fmt.Sprintf("m%sx%dx%d", os.Getenv("SOUK_TEST_ROUND"), w, i), 1, lasting...)
				if err := r.Prepare(context.Background(), s); err != nil {
					panic(err)
				}
				st, err := r.Start(context.Background(), s)
				if err != nil {
					panic(err)
				}
				_ = enc.Encode(st)
			}
		}()
	}
	select {}
}

// TestCloseLeavesNoResources: after Close no goroutine, after the end of all machines no zombie, no cgroup, no descriptor.
func TestCloseLeavesNoResources(t *testing.T) {
	before := goleak.IgnoreCurrent()
	o := options(filepath.Join(t.TempDir(), "process"))
	r, err := process.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	pid := reaperPID(t, o.Dir)
	fds := func() int {
		es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range es {
			to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
			if err == nil && !strings.HasPrefix(to, filepath.Join(o.Dir, "spool")) { // a few are kept for what comes
				n++
			}
		}
		return n
	}
	waittest.Until(t, "what starts need is made beforehand", func() bool { // beside the answer to Open
		es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		pipes := 0
		for _, e := range es {
			if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); strings.HasPrefix(to, "pipe:") {
				pipes++
			}
		}
		return err == nil && pipes >= 16
	})
	empty := fds()
	t.Logf("%d descriptors before", empty)
	for i := range 20 {
		id := fmt.Sprintf("m%d", i)
		start(t, r, script(id, 1, "(sleep 0.01; echo late) & sleep 100 & echo x; exit 1"))
		if _, err := r.Exec(t.Context(), id, runtime.ExecRequest{Argv: []string{"true"}}); err != nil &&
			!fault.Is(err, fault.Precondition) {
			t.Error(err)
		}
	}
	for i := range 20 {
		id := fmt.Sprintf("m%d", i)
		if err := r.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	var zombies []string
	n := 0
	defer func() {
		if t.Failed() {
			t.Logf("the last look found the children %q and %d descriptors; before there were %d", zombies, n, empty)
		}
	}()
	waittest.Until(t, "no children and descriptors are left", func() bool {
		zombies = nil
		all, err := proc.All()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Parent == pid {
				zombies = append(zombies, fmt.Sprintf("%d %s %c", s.PID, s.Name, s.State))
			}
		}
		n = fds()
		return len(zombies) == 0 && n <= empty+1
	})
	t.Logf("%d descriptors behind", n)
	if err := r.StopReaper(t.Context()); err != nil {
		t.Error(err)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + reaper.TreeName(o.Dir))
	if len(groups) > 0 {
		t.Errorf("cgroups are left: %v", groups)
	}
	es, err := os.ReadDir(filepath.Join(o.Dir, "machines"))
	if err != nil || len(es) > 0 {
		t.Errorf("directories are left: %v %v", es, err)
	}
	goleak.VerifyNone(t, before)
}

// TestCgroupLimitsAreEnforced: the kernel holds machines to what they were given.
func TestCgroupLimitsAreEnforced(t *testing.T) {
	if os.Geteuid() != 0 {
		lacking(t, "root, for cgroups")
	}
	var dir string
	r := open(t, func(o *process.Options) { dir = o.Dir })
	s := script("oom", 1, `exec tail /dev/zero`)
	s.Resources.Memory, s.SwapMB = 32, 0
	start(t, r, s)
	if x := next(t, r, "oom"); !x.OOM || x.Code != 137 {
		t.Errorf("exit %+v, want an OOM kill", x)
	}
	// A program that outlives what ran out of memory, and is killed by souk later, was not killed for its memory.
	for id, kill := range map[string]func(id string) error{
		"signalled": func(id string) error { return r.Signal(t.Context(), id, syscall.SIGKILL) },
		"killed":    func(id string) error { return r.Kill(t.Context(), id) },
	} {
		s = script(id, 1, `tail /dev/zero; echo lives; exec sleep 1000`)
		s.Resources.Memory, s.SwapMB = 32, 0
		start(t, r, s)
		waittest.Until(t, "it lives", func() bool { return slices.Contains(texts(t, r, id), "lives") })
		if err := kill(id); err != nil {
			t.Fatal(err)
		}
		if x := next(t, r, id); x.OOM || x.Code != 137 {
			t.Errorf("exit %+v, want a kill", x)
		}
	}
	s = script("cpu", 1, `while :; do :; done`)
	s.Resources.CPU = 100
	start(t, r, s)
	waittest.Until(t, "it is throttled", func() bool {
		u, err := r.Usage(t.Context(), "cpu")
		return err == nil && u.Throttled > 200*time.Millisecond && u.CPU > 0 && u.Processes == 1
	})
	// The first instruction is inside already: nothing of a machine is ever seen outside its groups.
	start(t, r, script("in", 1, `cat /proc/self/cgroup`))
	next(t, r, "in")
	inside := 0
	for _, l := range texts(t, r, "in") {
		if strings.Contains(l, "/"+reaper.TreeName(dir)+"/s") {
			inside++
		}
	}
	if inside < 3 {
		t.Errorf("a machine is in %d groups of its own: %q", inside, texts(t, r, "in"))
	}
}

// TestMachineRunsAsItsOwnUser: a machine runs as another user, which can write its own directory and no other file of
// souk.
func TestMachineRunsAsItsOwnUser(t *testing.T) {
	if os.Geteuid() != 0 {
		r := open(t, nil)
		s := limited("m", 1, "/bin/true")
		s.User = "root"
		_ = r.Prepare(t.Context(), s)
		if _, err := r.Start(t.Context(), s); !fault.Is(err, fault.Precondition) {
			t.Errorf("%v, want a refusal", err)
		}
		lacking(t, "root, for the rest")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	o := options(filepath.Join(dir, "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	s := script("m", 1, `id -u; id -g; id -G; cat conf; echo x > mine && echo wrote; cat ../../logs/m/* || echo no log; ls .. || echo no list; cat ../../lives || echo no lives; echo x > ../state || echo no write`)
	s.User = "nobody"
	s.Files = []runtime.File{{Path: "conf", Mode: 0o400, Data: []byte("secret\n")}}
	start(t, r, s)
	next(t, r, "m")
	var got []string
	for _, l := range texts(t, r, "m") {
		if !strings.Contains(l, "enied") && !strings.Contains(l, "No such") {
			got = append(got, l)
		}
	}
	want := []string{"65534", "65534", "65534", "secret", "wrote", "no log", "no list", "no lives", "no write"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for user, kind := range map[string]fault.Kind{"no-such-user": fault.Precondition,
		"nobody:no-such-group": fault.Precondition} {
		s.Attempt++
		s.User = user
		if _, err := r.Start(t.Context(), s); !fault.Is(err, kind) {
			t.Errorf("user %s: %v", user, err)
		}
	}
}

// TestStrangersCannotUseTheSocket: the socket is closed to others, and what comes through it cannot wedge the reaper.
func TestStrangersCannotUseTheSocket(t *testing.T) {
	// longer than a socket's name may be
	o := options(filepath.Join(t.TempDir(), strings.Repeat("long", 40), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	st, err := os.Stat(filepath.Join(o.Dir, reaper.SocketFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(o.Dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", st.Mode(), err)
	}
	for _, garbage := range []string{"", "x", strings.Repeat("\xff", 100), strings.Repeat("\x00", 100),
		"GET / HTTP/1.1\r\n\r\n"} {
		c, err := process.Dial(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(garbage))
		_ = c.Close()
	}
	if _, err := r.List(t.Context()); err != nil {
		t.Error(err)
	}
	if reaperPID(t, o.Dir) == 0 {
		t.Error("the reaper has gone")
	}
}
