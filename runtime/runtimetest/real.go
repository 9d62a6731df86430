package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/loopfs"
)

func testEnvironment(h *harness) {
	s := spec("m", 1, "/usr/bin/env")
	s.Env = []string{"B=2", "A=with space", "EMPTY="}
	h.start(s)
	h.exitOf("m", 1)
	if d := cmp.Diff([]string{"A=with space", "B=2", "EMPTY="}, slices.Sorted(slices.Values(h.env("m")))); d != "" {
		h.Errorf("environment (-want +got):\n%s", d)
	}
	none := spec("n", 1, "/usr/bin/env")
	none.Env = nil
	h.start(none)
	h.exitOf("n", 1)
	if got := h.env("n"); len(got) != 0 {
		h.Errorf("a machine without environment has %q", got)
	}
	// A session of its own, the default action for every signal, and only three descriptors.
	s = sh("o", 1, "ls /proc/self/fd | wc -l; cut -d' ' -f6 /proc/$$/stat; umask; exec grep -E '^Sig(Ign|Blk)' "+
		"/proc/self/status")
	st := h.start(s)
	h.exitOf("o", 1)
	got := h.texts("o", machine.LogQuery{})
	session := strconv.Itoa(st.PID)
	if h.OwnPIDs {
		session = got[min(1, len(got)-1)]
	}
	want := []string{"4", session, "0022", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"}
	if h.Sandbox {
		want = want[:3]
	}
	if d := cmp.Diff(want, got); d != "" {
		h.Errorf("what a machine inherits (-want +got):\n%s", d)
	}
}

// env returns the environment that a machine has printed, without HOME, which containers always have.
func (h *harness) env(id string) []string {
	h.Helper()
	return slices.DeleteFunc(h.texts(id, machine.LogQuery{}), func(kv string) bool {
		return h.OwnPIDs && strings.HasPrefix(kv, "HOME=")
	})
}

func testRealSignals(h *harness) {
	h.start(sh("m", 1, `trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.01; done`))
	h.until("the trap is set", func() bool { return len(h.lines("m", machine.LogQuery{})) == 1 })
	h.ok(h.rt.Signal(h.ctx(), "m", syscall.SIGUSR1))
	if x := h.exitOf("m", 1); x.Code != 9 || x.Signal != 0 {
		h.Errorf("exit %+v", x)
	}
	if got := h.texts("m", machine.LogQuery{Tail: new(1)}); !slices.Equal(got, []string{"got it"}) {
		h.Errorf("log %q", got)
	}
	h.start(sh("m", 2, `kill -SEGV $$`))
	if x := h.exitOf("m", 2); x.Code != 128+11 || x.Signal != 11 && !h.OwnPIDs {
		h.Errorf("exit %+v", x)
	}
}

func testExecShares(h *harness) {
	s := spec("m", 1, "sleep", "1000")
	s.Env = append(s.Env, "SECRET=of the machine")
	st := h.start(s)
	if h.OwnPIDs {
		st.PID = 1
	}
	for range 2 {
		var out bytes.Buffer
		code, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"sh", "-c", fmt.Sprintf(
			`echo $SECRET; test "$(readlink /proc/%d/cwd)" = "$PWD" && echo same directory; cmp /proc/self/cgroup /proc/%d/cgroup && echo same groups`, st.PID, st.PID)}, Stdout: &out, Stderr: &out})
		h.ok(err)
		want := "of the machine\nsame directory\nsame groups\n"
		if got := out.String(); code != 0 || got != want && (!h.Sandbox || // gVisor has no /proc/PID/cwd before 2023
			got != strings.Replace(want, "same directory\n", "", 1)) {
			h.Errorf("code %d, output %q", code, &out)
		}
		h.reopen() // the environment is kept where it survives the end of souk
	}
}

// testExecElsewhere: a command starts in the given directory and, in a container, as the given user. If one of them
// does not exist, nothing is executed.
func testExecElsewhere(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	run := func(user, dir string) (string, error) {
		var out bytes.Buffer
		_, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"sh", "-c", "pwd; id -u; id -g"},
			User: user, Dir: dir, Stdout: &out, Stderr: &out})
		return strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", " "), err
	}
	for _, dir := range []string{"/usr/bin", "/tmp/"} {
		got, err := run("", dir)
		if h.ok(err); !strings.HasPrefix(got, strings.TrimSuffix(dir, "/")+" ") {
			h.Errorf("in %s: %q", dir, got)
		}
	}
	for dir, code := range map[string]fault.Code{"/no/such": runtime.CodeNoDirectory,
		"/etc/passwd": runtime.CodeNotExecutable, "/etc/passwd/x": runtime.CodeNotExecutable} {
		if got, err := run("", dir); fault.CodeOf(err) != code || got != "" {
			h.Errorf("in %s: %q, %v; want the code %s", dir, got, err, code)
		}
	}
	if !h.OwnPIDs { // a program of the host
		_, err := run("nobody", "")
		h.want(err, fault.Precondition)
		return
	}
	h.reopen() // the tables of the running container are used, whoever started it
	for user, want := range map[string]string{"web": "/usr 33 33", "web:7": "/usr 33 7", "4242:44": "/usr 4242 44",
		"0": "/usr 0 0", "late": "/usr 77 78"} {
		if user == "late" {
			_, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"sh", "-c",
				"echo late:x:77:78::/:/bin/sh >>/etc/passwd"}})
			h.ok(err)
		}
		if got, err := run(user, "/usr"); err != nil || got != want {
			h.Errorf("as %s: %q, %v; want %q", user, got, err, want)
		}
	}
	for _, user := range []string{"nosuch", "web:nosuch", "3000000000"} {
		got, err := run(user, "")
		if h.want(err, fault.Precondition); got != "" {
			h.Errorf("as %s: %q", user, got)
		}
	}
}

// testExecBlocks: a command's reads and writes block, as programs expect: none fails with EAGAIN.
func testExecBlocks(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	fdinfo := []string{"sh", "-c", "cd /proc/$$/fdinfo; cat 0 1 2"}
	var out bytes.Buffer
	for _, apart := range []bool{false, true} {
		var other bytes.Buffer
		out.Reset()
		q := runtime.ExecRequest{Argv: fdinfo,
			Stdin: strings.NewReader("something"), Stdout: &out, Stderr: &out}
		if apart {
			q.Stderr = &other
		}
		_, err := h.rt.Exec(h.ctx(), "m", q)
		h.ok(err)
		h.blocks(out.String())
	}
	out.Reset()
	_, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: fdinfo, Stdout: &out, Terminal: new(runtime.Terminal)})
	h.ok(err)
	h.blocks(out.String())
	for id, tty := range map[string]bool{"n": false, "o": true} { // and so do those of a main process
		s := spec(id, 1, fdinfo...)
		s.TTY = tty
		h.start(s)
		h.exitOf(id, 1)
		h.blocks(strings.Join(h.texts(id, machine.LogQuery{}), "\n"))
	}
}

// blocks checks the output of fdinfo.
func (h *harness) blocks(said string) {
	h.Helper()
	n := 0
	for line := range strings.Lines(said) {
		if flags, is := strings.CutPrefix(line, "flags:"); is {
			n++
			f, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
			if err != nil || f&syscall.O_NONBLOCK != 0 {
				h.Errorf("descriptor %d has flags %s", n-1, flags)
			}
		}
	}
	if n != 3 {
		h.Errorf("what a program has: %q", said)
	}
}

func testExecKills(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	ctx, cancel := context.WithTimeout(h.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := h.rt.Exec(ctx, "m", runtime.ExecRequest{Argv: []string{"sh", "-c", "sleep 1001 & sleep 1002"},
		Stdout: &bytes.Buffer{}})
	h.want(err, fault.Timeout)
	h.until("the command and its child are gone", func() bool {
		ps, err := h.rt.Processes(h.ctx(), "m")
		h.ok(err)
		return len(ps) == h.processes(1)
	})
}

func testPauseStops(h *harness) {
	p, ok := h.rt.(runtime.Pauser)
	if !ok {
		h.Skip("it cannot suspend")
	}
	st := h.start(sh("m", 1, "sh -c 'while :; do :; done' & while :; do :; done"))
	used := func() uint64 {
		if m, ok := h.rt.(runtime.Meter); ok && h.Sandbox {
			u, err := m.Usage(h.ctx(), "m")
			h.ok(err)
			return uint64(u.CPU.Milliseconds())
		}
		ps, err := h.rt.Processes(h.ctx(), "m")
		h.ok(err)
		sum := uint64(0)
		for _, p := range ps {
			sum += p.CPU
		}
		return sum
	}
	h.until("both burn", func() bool { return used() >= 60 })
	h.ok(p.Pause(h.ctx(), "m"))
	before := used()
	time.Sleep(150 * time.Millisecond) // waits, because there is no event for what does not happen
	if after := used(); after > before {
		h.Errorf("a paused machine used %d ms of CPU", after-before)
	}
	h.ok(p.Resume(h.ctx(), "m"))
	h.until("it goes on", func() bool { return used() >= before+50 })
	if now, _ := h.status("m"); now.PID != st.PID {
		h.Errorf("pid %d, was %d", now.PID, st.PID)
	}
}

// testLeftovers: all processes that a machine starts end with it, however it ends.
func testLeftovers(h *harness) {
	alive := func(pid int) bool { return syscall.Kill(pid, 0) == nil && !zombie(pid) }
	script := `sleep 1001 & echo $!; sh -c 'sleep 1002 & echo $!'; `
	n := 2
	if h.Contained {
		script += `setsid sh -c 'sleep 1003 & echo $!; exec sleep 1004' & `
		n = 3
	}
	for i, end := range []string{"exit", "kill", "remove"} {
		id := "m" + strconv.Itoa(i)
		tail := "wait; sleep 1000"
		if end == "exit" {
			tail = "sleep 0.3; exit 0"
		}
		st := h.start(sh(id, 1, script+tail))
		var pids []int
		h.until("all are started", func() bool { return len(h.lines(id, machine.LogQuery{})) == n })
		for _, l := range h.texts(id, machine.LogQuery{}) {
			pid, err := strconv.Atoi(l)
			h.ok(err)
			pids = append(pids, pid)
		}
		if h.OwnPIDs && !h.Sandbox {
			ps, err := h.rt.Processes(h.ctx(), id)
			h.ok(err)
			pids = pids[:0]
			for _, p := range ps {
				pids = append(pids, int(p.PID))
			}
		}
		if h.Sandbox { // the host has no pids for them
			pids = []int{st.PID}
		}
		switch end {
		case "kill":
			h.ok(h.rt.Kill(h.ctx(), id))
		case "remove":
			h.ok(h.rt.Remove(h.ctx(), id))
		}
		if end != "remove" {
			h.exitOf(id, 1)
		}
		for _, pid := range pids {
			h.until(fmt.Sprintf("%s: %d of %v has ended", end, pid, pids), func() bool { return !alive(pid) })
		}
	}
}

func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(b, ')')
	return i > 0 && len(b) > i+2 && b[i+2] == 'Z'
}

func testLogLines(h *harness) {
	h.start(sh("m", 1, `printf 'no newline'; printf ' then one\n\n'; printf 'tab\tand \001\n'; head -c 40000 /dev/zero | tr '\0' x; echo; printf 'the end'`))
	h.exitOf("m", 1)
	got := h.texts("m", machine.LogQuery{})
	long := strings.Repeat("x", 16<<10)
	want := []string{"no newline then one", "", "tab\tand \x01", long, long, strings.Repeat("x", 40000-2*16<<10+0),
		"the end"}
	want[5] = strings.Repeat("x", 40000-32<<10)
	if d := cmp.Diff(want, got); d != "" {
		h.Errorf("log (-want +got):\n%.2000s", d)
	}
}

func testLogBound(h *harness) {
	if h.LogBound == 0 {
		h.Skip("no bound is stated")
	}
	size := 1 << 30
	if RaceEnabled {
		size = 64 << 20
	}
	if h.Sandbox { // each write costs it 0.1 ms
		size = 16 << 20
	}
	h.start(sh("m", 1, fmt.Sprintf("yes 'a line that comes again and again' | head -c %d; echo; echo the last", size)))
	begin := time.Now()
	var x runtime.Exit
	select {
	case x = <-h.rt.Exits():
	case <-time.After(5 * time.Minute):
		h.Fatal("it does not end")
	}
	if x.Code != 0 {
		h.Errorf("exit %+v", x)
	}
	h.Logf("%d MiB of output in %v", size>>20, time.Since(begin).Round(time.Millisecond))
	kept, last := int64(0), ""
	h.ok(h.rt.Logs(h.ctx(), "m", machine.LogQuery{}, func(l machine.LogLine) error {
		kept, last = kept+int64(len(l.Text))+1, l.Text
		return nil
	}))
	if kept > h.LogBound || kept < h.LogBound/20 || last != "the last" {
		h.Errorf("%d bytes are kept, want at most %d; the last line is %q", kept, h.LogBound, last)
	}
	// A cursor that has been rotated away continues with the oldest line that is kept.
	n := 0
	h.ok(h.rt.Logs(h.ctx(), "m", machine.LogQuery{Cursor: "1:10:0"}, func(machine.LogLine) error { n++; return nil }))
	if n == 0 {
		h.Error("nothing behind a cursor that was rotated away")
	}
}

func testFiles(h *harness) {
	if h.RootOf == nil {
		h.Skip("files cannot be seen from outside")
	}
	s := sh("m", 1, "cat etc/app.conf bin/tool; stat -c '%a' etc/app.conf bin/tool; ./bin/tool")
	s.Files = []runtime.File{
		{Path: "/etc/app.conf", Mode: 0o600, Data: []byte("conf\n")},
		{Path: "bin/tool", Mode: 0o4755, Data: []byte("#!/bin/sh\necho run\n")},
	}
	h.start(s)
	h.exitOf("m", 1)
	want := []string{"conf", "#!/bin/sh", "echo run", "600", "755", "run"}
	if d := cmp.Diff(want, h.texts("m", machine.LogQuery{})); d != "" {
		h.Errorf("(-want +got):\n%s", d)
	}
	s.Attempt, s.Files[0].Data, s.Argv = 2, []byte("new\n"), []string{"cat", "etc/app.conf"}
	h.start(s)
	h.exitOf("m", 2)
	if got := h.texts("m", machine.LogQuery{Tail: new(1)}); !slices.Equal(got, []string{"new"}) {
		h.Errorf("the second start has %q", got)
	}
}

func testFilesInside(h *harness) {
	if h.RootOf == nil {
		h.Skip("files cannot be seen from outside")
	}
	out := filepath.Join(h.TempDir(), "victim")
	h.ok(os.MkdirAll(out, 0o755))
	target := filepath.Join(out, "file")
	h.ok(os.WriteFile(target, []byte("untouched"), 0o644))
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	root := h.RootOf("m")
	h.ok(os.Symlink(out, filepath.Join(root, "dirlink")))
	h.ok(os.Symlink(target, filepath.Join(root, "filelink")))
	h.ok(os.Symlink("../../../../../../../../"+out, filepath.Join(root, "uplink")))
	h.ok(os.Link(target, filepath.Join(root, "hardlink")))
	h.ok(syscall.Mkfifo(filepath.Join(root, "fifo"), 0o666))
	attempt := uint64(0)
	try := func(path string) error {
		attempt++
		s := spec("m", attempt, "true")
		s.Files = []runtime.File{{Path: path, Data: []byte("attack")}}
		_, err := h.rt.Start(h.ctx(), s)
		if err == nil {
			h.exitOf("m", attempt)
		}
		return err
	}
	for _, p := range []string{"../x", "/../x", "a/../../x", "..", "/", "", ".", "a\x00b"} {
		h.want(try(p), fault.Invalid)
	}
	for _, p := range []string{"/dirlink/file", "/dirlink/new", "/uplink/file", "/fifo/x"} {
		h.want(try(p), fault.Precondition)
	}
	for _, p := range []string{"/filelink", "/hardlink", "/fifo"} { // replaced, not followed
		h.ok(try(p))
	}
	b, err := os.ReadFile(target)
	h.ok(err)
	es, err := os.ReadDir(out)
	h.ok(err)
	if string(b) != "untouched" || len(es) != 1 {
		h.Errorf("outside there is now %q and %d files", b, len(es))
	}
	h.ok(h.rt.Remove(h.ctx(), "m"))
	if _, err := os.Stat(target); err != nil {
		h.Errorf("Remove followed a symlink: %v", err)
	}
}

// testSizedMount: a volume with a file system of its own holds no more than its size, the next machine finds its
// contents, and nobody else sees it mounted.
func testSizedMount(h *harness) {
	if err := loopfs.Able(); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			h.Fatal(err)
		}
		h.Skip(err)
	}
	vol := filepath.Join(h.TempDir(), "vol1.ext4")
	h.ok(loopfs.Make(h.Context(), vol, 32<<20))
	of := func(id string, attempt uint64, script string) runtime.Spec {
		s := sh(id, attempt, script)
		s.Mounts = []runtime.Mount{{Volume: "vol1", Dir: vol, Path: "/data"}}
		return s
	}
	h.start(of("m", 1, "dd if=/dev/zero of=/data/large bs=1M count=64 2> /dev/null && echo all of it; "+
		"rm /data/large; echo kept > /data/small; cat /data/small"))
	h.exitOf("m", 1)
	if got := h.texts("m", machine.LogQuery{}); !slices.Equal(got, []string{"kept"}) {
		h.Errorf("of 32 MiB: %q", got)
	}
	for n := uint64(2); n < 5; n++ { // each starts while the kernel may still be releasing the previous mount
		h.start(of("m", n, "cat /data/small; exec sleep 1000"))
		h.ok(h.rt.Kill(h.ctx(), "m"))
		h.exitOf("m", n)
	}
	h.start(of("m2", 1, "cat /data/small; exec sleep 1000"))
	h.until("another machine has it", func() bool {
		return slices.Equal(h.texts("m2", machine.LogQuery{}), []string{"kept"})
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	h.ok(err)
	if strings.Contains(string(mounts), "ext4 /dev/loop") {
		h.Errorf("a volume is mounted on the host:\n%s", mounts)
	}
	h.ok(h.rt.Remove(h.ctx(), "m2"))
	h.until("its device is gone", func() bool {
		used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		h.ok(err)
		return !slices.ContainsFunc(used, func(f string) bool {
			b, err := os.ReadFile(f)
			return err == nil && strings.Contains(string(b), vol)
		})
	})
}

func testMounts(h *harness) {
	vol, other := h.TempDir(), h.TempDir()
	h.ok(os.WriteFile(filepath.Join(vol, "kept"), []byte("data\n"), 0o644))
	s := sh("m", 1, "cat data/kept; echo more > data/new")
	s.Mounts = []runtime.Mount{{Volume: "vol1", Dir: vol, Path: "/data"}}
	h.start(s)
	if x := h.exitOf("m", 1); x.Code != 0 {
		h.Errorf("exit %+v, log %q", x, h.texts("m", machine.LogQuery{}))
	}
	s.Attempt = 2 // the same once more
	h.start(s)
	h.exitOf("m", 2)
	s.Attempt, s.Mounts[0].Dir, s.Argv = 3, other, []string{"ls", "data/"} // another volume at the same path
	h.start(s)
	h.exitOf("m", 3)
	if got := h.texts("m", machine.LogQuery{}); !slices.Equal(got, []string{"data", "data"}) {
		h.Errorf("log %q", got)
	}
	s.Attempt, s.Mounts[0].Path = 4, "../data"
	_, err := h.rt.Start(h.ctx(), s)
	h.want(err, fault.Invalid)
	s.Mounts[0].Path, s.Mounts[0].Dir = "/data2", "relative"
	_, err = h.rt.Start(h.ctx(), s)
	h.want(err, fault.Invalid)
	h.ok(h.rt.Remove(h.ctx(), "m"))
	if b, err := os.ReadFile(filepath.Join(vol, "new")); err != nil || string(b) != "more\n" {
		h.Errorf("after Remove the volume holds %q, %v", b, err)
	}
}

// testPauseRacesExec: at any time a command either runs in a machine or is refused because the machine is suspended.
// Neither waits for the other, and other machines start meanwhile.
func testPauseRacesExec(h *harness) {
	p, ok := h.rt.(runtime.Pauser)
	if !ok {
		h.Skip("it cannot suspend")
	}
	h.start(spec("m", 1, "sleep", "1000"))
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(h.Context(), waittest.Patience)
				_, err := h.rt.Exec(ctx, "m", runtime.ExecRequest{Argv: []string{"true"}})
				cancel()
				if err != nil && !fault.Is(err, fault.Precondition) && !fault.Is(err, fault.Timeout) {
					h.Errorf("exec: %v", err)
				}
			}
		})
	}
	rounds := 30
	if h.Sandbox { // a command in it takes six times as long to start
		rounds = 6
	}
	for k := range rounds {
		ctx, cancel := context.WithTimeout(h.Context(), waittest.Patience)
		for _, f := range []func(context.Context, string) error{p.Pause, p.Resume} {
			if err := f(ctx, "m"); err != nil {
				h.Errorf("round %d: %v", k, err)
			}
		}
		other := fmt.Sprintf("other%d", k)
		s := spec(other, 1, "sleep", "1000")
		s.Fresh = true
		if _, err := h.rt.Start(ctx, s); err != nil {
			h.Errorf("round %d: another machine does not start: %v", k, err)
		}
		if err := h.rt.Remove(ctx, other); err != nil {
			h.Errorf("round %d: another machine does not end: %v", k, err)
		}
		cancel()
		if h.Failed() {
			break
		}
	}
	close(stop)
	clients.Wait()
}
