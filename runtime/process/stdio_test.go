package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
)

// public makes a directory that every user may enter and write to.
func public(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "souk-stdio-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eachUser runs a test for a program of a user of the host, where souk is root, and for one of the machine's own.
func eachUser(t *testing.T, f func(t *testing.T, as *runtime.As)) {
	t.Run("own", func(t *testing.T) { f(t, nil) })
	t.Run("as", func(t *testing.T) {
		asRoot(t)
		f(t, submitter(0o027))
	})
}

// mustBe compares a file's contents.
func mustBe(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

// ran runs a start to its end, and wants its log to be empty.
func ran(t *testing.T, r *process.Runtime, s runtime.Spec) runtime.Exit {
	t.Helper()
	start(t, r, s)
	x := next(t, r, s.Machine)
	if err := r.Ack(t.Context(), s.Machine, s.Attempt); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, r, s.Machine); len(got) > 0 {
		t.Errorf("the log of %s has %q", s.Machine, got)
	}
	return x
}

// TestProgramStartsInADirectoryOfTheUsersChoice: it and the commands beside it, also when another reaper has taken
// over, and in a mount namespace of its own.
func TestProgramStartsInADirectoryOfTheUsersChoice(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			eachUser(t, func(t *testing.T, as *runtime.As) { startInDir(t, noCgroups, as) })
		})
	}
}

func startInDir(t *testing.T, noCgroups bool, as *runtime.As) {
	dir := ""
	r := open(t, func(o *process.Options) { o.NoCgroups, dir = noCgroups, o.Dir })
	pub := public(t)
	s := limited("m", 1, "./go", "word")
	s.As, s.Dir, s.Stdio = as, pub, runtime.Stdio{Out: "out", Err: "err", In: "in"}
	text := "#!/bin/sh\npwd; cat; echo $1 >&2; exec sleep 100000\n"
	for name, data := range map[string]string{"go": text, "in": "input\n"} {
		if err := os.WriteFile(filepath.Join(pub, name), []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(t.Context(), s); err != nil {
		t.Errorf("its check: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(pub, "out")); !os.IsNotExist(err) {
		t.Errorf("the check has made a file: %v", err)
	}
	st := start(t, r, s)
	waittest.Until(t, "it has written", func() bool {
		b, _ := os.ReadFile(filepath.Join(pub, "err"))
		return len(b) > 0
	})
	mustBe(t, filepath.Join(pub, "out"), pub+"\ninput\n")
	mustBe(t, filepath.Join(pub, "err"), "word\n")
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", st.PID)); err != nil || cwd != pub {
		t.Errorf("its directory is %q, %v", cwd, err)
	}
	for _, when := range []string{"now", "with the next reaper"} {
		if got := said(t, r, "m", "pwd"); got != pub {
			t.Errorf("%s, a command says %q", when, got)
		}
		if when == "now" {
			killReaper(t, dir)
			waittest.Succeed(t, "there is another reaper", func() error {
				_, err := r.List(t.Context())
				return err
			})
		}
	}
	if err := r.Kill(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if x := next(t, r, "m"); x.Lost || x.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", x)
	}
	if got := texts(t, r, "m"); len(got) > 0 {
		t.Errorf("the log has %q", got)
	}
	shown := limited("n", 1, "/bin/sh", "-c", "cat /proc/self/cgroup >/dev/null; pwd >&2; cat soukstdio/f")
	shown.As, shown.Dir, shown.Stdio = as, "/", runtime.Stdio{Out: filepath.Join(pub, "n")}
	shown.Files = []runtime.File{{Path: "/soukstdio/f", Data: []byte("a file")}}
	if os.Geteuid() != 0 {
		return // its files are below the machine's directory
	}
	start(t, r, shown)
	if x := next(t, r, "n"); x.Code != 0 {
		t.Errorf("%+v", x)
	}
	mustBe(t, filepath.Join(pub, "n"), "a file")
	if got := texts(t, r, "n"); len(got) != 1 || got[0] != "/" {
		t.Errorf("in a namespace of its own, the log has %q", got)
	}
}

// TestFilesBelongToTheUser: their owner and mode, what each start leaves of them, and their order where they are one.
func TestFilesBelongToTheUser(t *testing.T) {
	eachUser(t, func(t *testing.T, as *runtime.As) {
		r := open(t, nil)
		pub := public(t)
		out := filepath.Join(pub, "out")
		s := limited("m", 1, "/bin/sh", "-c", "id -u; echo 2 >&2; echo 3; echo 4 >&2")
		s.As, s.Dir, s.Stdio = as, pub, runtime.Stdio{Out: "out", Err: out}
		for range 3 {
			ran(t, r, s)
			s.Attempt++
			s.Stdio.Append = s.Attempt == 3
		}
		uid := ownerOf(t, out)
		once := fmt.Sprintf("%d\n2\n3\n4\n", uid)
		mustBe(t, out, once+once)
		st, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		mode, gid := os.FileMode(0o644), st.Sys().(*syscall.Stat_t).Gid
		if as != nil {
			mode = 0o640
		}
		if st.Mode() != mode || as != nil && (uid != int(as.UID) || gid != as.GID) || uid == 0 && os.Geteuid() == 0 {
			t.Errorf("it is of %d:%d with mode %v, want %v", uid, gid, st.Mode(), mode)
		}
		s.Stdio = runtime.Stdio{In: "out", Err: "/dev/null"}
		s.Argv = []string{"/bin/sh", "-c", "cat; echo hidden >&2"}
		start(t, r, s)
		next(t, r, "m")
		if got := strings.Join(texts(t, r, "m"), "\n") + "\n"; got != once+once {
			t.Errorf("the log has %q", got)
		}
	})
}

// TestInputByTheWorkerIsOpenedAsSouk: the user may not read it, but the program does.
func TestInputByTheWorkerIsOpenedAsSouk(t *testing.T) {
	eachUser(t, func(t *testing.T, as *runtime.As) {
		r := open(t, nil)
		secret, pub := filepath.Join(t.TempDir(), "input"), public(t)
		if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := limited("m", 1, "/bin/cat")
		s.As, s.Stdio = as, runtime.Stdio{In: secret, Out: pub + "/out", InByWorker: true}
		ran(t, r, s)
		mustBe(t, pub+"/out", "secret")
		if os.Geteuid() != 0 {
			return
		}
		s.Attempt, s.Stdio.InByWorker = 2, false
		if _, err := r.Start(t.Context(), s); fault.CodeOf(err) != runtime.CodeStdio ||
			!fault.Is(err, fault.Precondition) {
			t.Errorf("without its worker: %v", err)
		}
		mustBe(t, pub+"/out", "secret") // a start that is refused truncates nothing
	})
}

// TestFilesAndDirectoriesAreRefused: each with a sentence, and nothing runs or waits.
func TestFilesAndDirectoriesAreRefused(t *testing.T) {
	eachUser(t, refuseFiles)
}

func refuseFiles(t *testing.T, as *runtime.As) {
	r := open(t, nil)
	pub := public(t)
	for name, mode := range map[string]os.FileMode{"theirs": 0o600, "file": 0o666, "private": os.ModeDir | 0o700} {
		p := filepath.Join(pub, name)
		var err error
		if mode.IsDir() {
			if err = os.Mkdir(p, 0o700); err == nil {
				err = os.WriteFile(p+"/f", nil, 0o666)
			}
			err = errorsFirst(err, os.Chmod(p+"/f", 0o666))
		} else {
			err = errorsFirst(os.WriteFile(p, []byte("kept"), mode), os.Chmod(p, mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errorsFirst(syscall.Mkfifo(pub+"/fifo", 0o666), os.Chmod(pub+"/fifo", 0o666),
		os.Symlink("nowhere/x", pub+"/link")); err != nil {
		t.Fatal(err)
	}
	type refusal struct {
		dir   string
		files runtime.Stdio
		code  fault.Code
		says  string
	}
	cases := map[string]refusal{
		"no directory":    {pub + "/none", runtime.Stdio{}, "workdir", "no directory " + pub + "/none"},
		"a file":          {pub + "/file", runtime.Stdio{}, "workdir", "is no directory"},
		"no parent":       {pub, runtime.Stdio{Out: "a/b/x"}, "stdio", "no directory " + pub + "/a on"},
		"a file above":    {pub, runtime.Stdio{Err: "file/x"}, "stdio", "no directory " + pub + "/file on"},
		"a dangling link": {pub, runtime.Stdio{Out: "link"}, "stdio", "symbolic link"},
		"a directory":     {pub, runtime.Stdio{Out: "."}, "stdio", "is a directory"},
		"no input":        {pub, runtime.Stdio{In: "none"}, "stdio", "no file " + pub + "/none"},
		"a FIFO to read":  {pub, runtime.Stdio{In: "fifo"}, "stdio", "is a FIFO"},
		"a FIFO to write": {pub, runtime.Stdio{Out: "fifo"}, "stdio", "is a FIFO"},
		"an open file":    {pub, runtime.Stdio{Out: "/dev/stdout"}, "stdio", "/dev/stdout does"},
		"of the reaper":   {pub, runtime.Stdio{In: "/proc/thread-self/maps"}, "stdio", "is below /proc"},
	}
	if os.Geteuid() == 0 {
		for name, c := range map[string]refusal{
			"private":        {pub + "/private", runtime.Stdio{}, "workdir", "user "},
			"below private":  {pub, runtime.Stdio{In: "private/f"}, "stdio", "may not open"},
			"theirs":         {pub, runtime.Stdio{Out: "theirs"}, "stdio", "may not open"},
			"theirs to read": {pub, runtime.Stdio{In: "theirs"}, "stdio", "may not open"},
		} {
			cases[name] = c
		}
	}
	for name, c := range cases {
		s := limited("m", 1, "/bin/true")
		s.As, s.Dir, s.Stdio, s.Fresh = as, c.dir, c.files, true
		_, err := r.Start(t.Context(), s)
		if !fault.Is(err, fault.Precondition) || fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want code %s and %q", name, err, c.code, c.says)
		}
		if c.code == runtime.CodeNoDirectory {
			if found := r.FindDir(t.Context(), as, c.dir); fault.CodeOf(found) != c.code ||
				as != nil && found.Error() != err.Error() {
				t.Errorf("%s: in advance: %v; the start says: %v", name, found, err)
			}
		}
	}
	mustBe(t, pub+"/theirs", "kept")
	if err := r.FindDir(t.Context(), as, pub); err != nil {
		t.Error(err)
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Running || all[0].Attempt != 0 {
		t.Errorf("after the refusals there is %+v, %v", all, err)
	}
	s := limited("m", 1, "/bin/true") // its number was not used up
	if start(t, r, s); next(t, r, "m").Code != 0 {
		t.Error("it does not run afterwards")
	}
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestStdioIsRefusedByAReaperThatDoesNotKnowIt: it would run the program elsewhere.
func TestStdioIsRefusedByAReaperThatDoesNotKnowIt(t *testing.T) {
	r := open(t, nil)
	process.ForgetStdio(r)
	s := limited("m", 1, "/bin/true")
	for _, c := range []runtime.Spec{{Dir: "/"}, {Stdio: runtime.Stdio{Out: "/dev/null"}}} {
		s.Dir, s.Stdio, s.Fresh = c.Dir, c.Stdio, true
		if _, err := r.Start(t.Context(), s); fault.CodeOf(err) != runtime.CodeProtocol {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := r.FindDir(t.Context(), nil, "/"); fault.CodeOf(err) != runtime.CodeProtocol {
		t.Errorf("a directory in advance: %v", err)
	}
}

// TestNextMachineHasTheReapersRights: the threads that took a user's rights serve no other start.
func TestNextMachineHasTheReapersRights(t *testing.T) {
	asRoot(t)
	r := open(t, nil)
	want := ranAs(t, r, "plain", 1, nil)
	delete(want, "uid") // each has its own
	delete(want, "gid")
	pub := public(t)
	for i := range 12 {
		s := limited(fmt.Sprint("m", i), 1, self...)
		s.As, s.Stdio = submitter(0o077), runtime.Stdio{Out: pub + "/out"}
		ran(t, r, s)
		s.Machine, s.Stdio.Err, s.Fresh = fmt.Sprint("bad", i), "/none/x", true
		if _, err := r.Start(t.Context(), s); err == nil {
			t.Error("it is not refused")
		}
		ranAs(t, r, fmt.Sprint("n", i), 1, nil).hasAll(t, "the next one", want)
	}
}

// TestMachineSeesTheHostsDirectories: what a user names is what the program sees there.
func TestMachineSeesTheHostsDirectories(t *testing.T) {
	r := open(t, nil)
	pub := public(t)
	for i, dir := range []string{"/tmp", "/srv", "/home", "/var/tmp"} {
		want, err := os.Stat(dir)
		if err != nil {
			continue
		}
		s := limited(fmt.Sprint("m", i), 1, "/usr/bin/stat", "-c", "%d %i", ".", dir)
		s.Dir, s.Stdio = dir, runtime.Stdio{Out: pub + "/out" + fmt.Sprint(i)}
		ran(t, r, s)
		line := fmt.Sprintf("%d %d\n", want.Sys().(*syscall.Stat_t).Dev, want.Sys().(*syscall.Stat_t).Ino)
		mustBe(t, s.Stdio.Out, line+line)
	}
}

// TestOtherStreamIsKeptBesideAFile: one stream goes to a file and the other to the log, also when another reaper has
// taken over, or the reaper was replaced by another build.
func TestOtherStreamIsKeptBesideAFile(t *testing.T) {
	for _, how := range []string{"killed", "upgraded"} {
		t.Run(how, func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "process"))
			t.Cleanup(func() { stopReaper(t, o) })
			old := o
			if how == "upgraded" {
				old.ReaperCommand = []string{otherBuild(t)}
			}
			r := reopen(t, old)
			pub := public(t)
			s := script("m", 1, `echo out; echo first >&2; while [ ! -e next ]; do sleep 0.01; done; echo more
				echo second >&2; exit 3`)
			s.Dir, s.Stdio = pub, runtime.Stdio{Out: "out"}
			start(t, r, s)
			waittest.Until(t, "it has begun", func() bool { return len(texts(t, r, "m")) == 1 })
			if how == "killed" {
				killReaper(t, o.Dir)
			} else if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r = reopen(t, o)
			if err := os.WriteFile(pub+"/next", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if x := next(t, r, "m"); x.Code != 3 {
				t.Errorf("%+v", x)
			}
			if got := strings.Join(texts(t, r, "m"), " "); got != "first second" {
				t.Errorf("the log has %q", got)
			}
			mustBe(t, pub+"/out", "out\nmore\n")
			if raw, err := os.ReadFile(filepath.Join(o.Dir, "reaper.log")); err != nil || strings.Contains(string(raw),
				"output of an adopted machine is lost") {
				t.Errorf("the reaper's log: %v\n%s", err, raw)
			}
		})
	}
}
