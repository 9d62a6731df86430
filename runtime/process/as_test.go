package process_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

// self is a program that says what it has been given, from its first instruction on.
var self = []string{"/bin/cat", "/proc/self/status", "/proc/self/limits", "/proc/self/stat"}

// given is what a program has: "uid", "gid", "groups", "umask" and "nice", and its limits by their names in /proc, such
// as "Max open files", as soft/hard.
type given map[string]string

func readGiven(text string) given {
	g := given{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, value, is := strings.Cut(line, ":"); is {
			switch f := strings.Fields(value); name {
			case "Uid", "Gid":
				g[strings.ToLower(name)] = strings.Join(f, " ")
			case "Groups", "Umask":
				g[strings.ToLower(name)] = strings.TrimSpace(value)
			}
			continue
		}
		if strings.HasPrefix(line, "Max ") && len(line) > 26 {
			f := strings.Fields(line[26:])
			g[strings.TrimSpace(line[:26])] = f[0] + "/" + f[1]
		}
		if _, rest, is := strings.Cut(line, ") R "); is { // of stat; R is field 3, nice 19
			g["nice"] = strings.Fields(rest)[15]
		}
	}
	return g
}

// hasAll reports the things that differ from want.
func (g given) hasAll(t *testing.T, what string, want given) {
	t.Helper()
	for k, v := range want {
		if g[k] != v {
			t.Errorf("%s: %s is %q, want %q", what, k, g[k], v)
		}
	}
}

// ranAs runs self to its end and returns what it says.
func ranAs(t *testing.T, r *process.Runtime, id string, attempt uint64, as *runtime.As) given {
	t.Helper()
	s := limited(id, attempt, self...)
	s.As = as
	start(t, r, s)
	if x := next(t, r, id); x.Code != 0 {
		t.Fatalf("%+v", x)
	}
	if err := r.Ack(t.Context(), id, attempt); err != nil {
		t.Fatal(err)
	}
	g := readGiven(strings.Join(texts(t, r, id), "\n"))
	if err := r.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return g
}

// execGiven runs self beside a machine.
func execGiven(t *testing.T, r *process.Runtime, id string, term *runtime.Terminal) given {
	t.Helper()
	var out bytes.Buffer
	q := runtime.ExecRequest{Argv: self, Stdout: &out, Stderr: &out, Terminal: term}
	if code, err := r.Exec(t.Context(), id, q); err != nil || code != 0 {
		t.Fatalf("%d, %v: %s", code, err, &out)
	}
	return readGiven(out.String())
}

func submitter(umask uint32, limits ...runtime.SoftLimit) *runtime.As {
	return &runtime.As{UID: 54321, GID: 54322, Groups: []uint32{54323, 54324}, Umask: &umask, Limits: limits}
}

// allLimits has a value for each resource.
func allLimits() (out []runtime.SoftLimit) {
	for _, name := range runtime.LimitNames() {
		out = append(out, runtime.SoftLimit{Resource: name, Soft: 1 << 30})
	}
	return out
}

// TestMachineRunsAsAUserOfTheHost: its program, what it writes, the commands beside it, also in a terminal and once
// another reaper has taken over; and nothing of it is left when it is removed.
func TestMachineRunsAsAUserOfTheHost(t *testing.T) {
	asRoot(t)
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) { runAsAUser(t, noCgroups) })
	}
}

func runAsAUser(t *testing.T, noCgroups bool) {
	dir := ""
	r := open(t, func(o *process.Options) { o.NoCgroups, dir = noCgroups, o.Dir })
	public, err := os.MkdirTemp("/tmp", "souk-as-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(public) })
	if err := os.Chmod(public, 0o777); err != nil {
		t.Fatal(err)
	}
	s := script("m", 1, `touch `+public+`/file mine; echo "$HOME $PWD"; (setsid sh -c 'echo $$; exec sleep 100000' &); `+
		`exec sleep 100000`)
	s.As, s.Home, s.TTY = submitter(0o027, allLimits()...), true, true
	first := start(t, r, s)
	stray, home := 0, ""
	waittest.Until(t, "it has begun", func() bool {
		lines := texts(t, r, "m")
		if len(lines) == 2 {
			home = lines[0]
			stray, _ = strconv.Atoi(strings.TrimSpace(lines[1]))
		}
		return stray > 0
	})
	if f := strings.Fields(home); len(f) != 2 || f[0] != f[1] {
		t.Errorf("its HOME and its directory are %q", home)
	}
	root := reaper.RootDir(dir, "m")
	for path, mode := range map[string]os.FileMode{filepath.Join(public, "file"): 0o640, root: 0o700,
		filepath.Join(root, "mine"): 0o640} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sys := st.Sys().(*syscall.Stat_t)
		if sys.Uid != 54321 || sys.Gid != 54322 || st.Mode().Perm() != mode {
			t.Errorf("%s is of %d:%d with mode %v, want 54321:54322 and %v", path, sys.Uid, sys.Gid, st.Mode(), mode)
		}
	}
	want := given{"uid": "54321 54321 54321 54321", "gid": "54322 54322 54322 54322", "groups": "54323 54324",
		"umask": "0027", "nice": niceOf(t, dir), "Max core file size": "1073741824/unlimited"}
	main, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", first.PID))
	if err != nil {
		t.Fatal(err)
	}
	if g := readGiven(string(main)); g["uid"] != want["uid"] || g["groups"] != want["groups"] ||
		g["umask"] != want["umask"] {
		t.Errorf("its main process: %v", g)
	}
	execGiven(t, r, "m", nil).hasAll(t, "a command", want)
	killReaper(t, dir)
	waittest.Succeed(t, "there is another reaper", func() error {
		_, err := r.List(t.Context())
		return err
	})
	want["nice"] = niceOf(t, dir)
	execGiven(t, r, "m", nil).hasAll(t, "a command of the next reaper", want)
	execGiven(t, r, "m", new(runtime.Terminal)).hasAll(t, "a command with a terminal", want)
	if err := r.Remove(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "its processes have ended", func() bool { return reaperGone(first.PID) && reaperGone(stray) })
	if _, err := os.Lstat(root); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// niceOf returns the nice value of a directory's reaper.
func niceOf(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", reaperPID(t, dir)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(raw[bytes.LastIndexByte(raw, ')'):]))[17]
}

// TestSoftLimitsStayBelowTheHardOnes: lower, higher and unlimited, of a resource with a hard limit and of one without.
// The hard limits are the worker's.
func TestSoftLimitsStayBelowTheHardOnes(t *testing.T) {
	asRoot(t)
	r := open(t, nil)
	plain := ranAs(t, r, "plain", 1, nil)
	_, hard, _ := strings.Cut(plain["Max open files"], "/")
	if _, err := strconv.Atoi(hard); err != nil {
		t.Fatalf("the hard limit of open files is %q", hard)
	}
	_, most, _ := strings.Cut(plain["Max core file size"], "/")
	core := func(soft string) string {
		if most != "unlimited" {
			return most + "/" + most
		}
		return soft + "/unlimited"
	}
	for i, c := range []struct {
		limit      runtime.SoftLimit
		name, want string
	}{
		{runtime.SoftLimit{Resource: "nofile", Soft: 77}, "Max open files", "77/" + hard},
		{runtime.SoftLimit{Resource: "nofile", Soft: 1 << 40}, "Max open files", hard + "/" + hard},
		{runtime.SoftLimit{Resource: "nofile", Soft: math.MaxUint64}, "Max open files", hard + "/" + hard},
		{runtime.SoftLimit{Resource: "core", Soft: 1 << 40}, "Max core file size", core("1099511627776")},
		{runtime.SoftLimit{Resource: "core", Soft: math.MaxUint64}, "Max core file size", core("unlimited")},
	} {
		got := ranAs(t, r, fmt.Sprint("m", i), 1, submitter(0o022, c.limit))
		want := given{c.name: c.want}
		for name, both := range plain { // nothing else changes
			if strings.HasPrefix(name, "Max ") && name != c.name {
				want[name] = both
			}
		}
		got.hasAll(t, fmt.Sprintf("%+v", c.limit), want)
	}
	for name, as := range map[string]*runtime.As{
		"nogroups": {UID: 54321, GID: 54322},
		"nomask":   {UID: 54321, GID: 54322, Groups: []uint32{54323}, Limits: allLimits()},
	} {
		want := given{"umask": plain["umask"], "groups": ""}
		if name == "nomask" {
			want["groups"], want["Max open files"] = "54323", hard+"/"+hard
		} else {
			want["Max open files"] = plain["Max open files"]
		}
		ranAs(t, r, name, 1, as).hasAll(t, name, want)
	}
}

// TestNextMachineHasTheReapersUmaskAndLimits: threads and cgroups are used again, also after a start that failed.
func TestNextMachineHasTheReapersUmaskAndLimits(t *testing.T) {
	asRoot(t)
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			r := open(t, func(o *process.Options) { o.NoCgroups = noCgroups })
			want := ranAs(t, r, "plain", 1, nil)
			if want["umask"] != "0022" {
				t.Errorf("without a user of the host, the umask is %s", want["umask"])
			}
			delete(want, "uid") // each has its own
			delete(want, "gid")
			bad := limited("bad", 1, notProgram(t))
			bad.As, bad.Fresh = submitter(0o077), true
			for i := range 12 {
				id := fmt.Sprint("m", i)
				got := ranAs(t, r, id, 1, submitter(0o077, runtime.SoftLimit{Resource: "nofile", Soft: 50}))
				if got["umask"] != "0077" || !strings.HasPrefix(got["Max open files"], "50/") {
					t.Errorf("%v", got)
				}
				if _, err := r.Start(t.Context(), bad); !fault.Is(err, fault.Precondition) {
					t.Errorf("a program that cannot be executed: %v", err)
				}
				ranAs(t, r, "n"+id, 1, nil).hasAll(t, "the next one", want)
			}
		})
	}
}

// TestUserOfTheHostIsRefused: by its start, and in advance.
func TestUserOfTheHostIsRefused(t *testing.T) {
	r := open(t, func(o *process.Options) { o.AllowRoot = true })
	mask := uint32(0o1000)
	s := limited("m", 1, "/bin/true")
	if err := r.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		as   *runtime.As
		user string
		kind fault.Kind
		code fault.Code
	}{
		"root":       {&runtime.As{UID: 0, GID: 54322}, "", fault.Precondition, "root"},
		"its group":  {&runtime.As{UID: 54321, GID: 0}, "", fault.Precondition, "root"},
		"a group":    {&runtime.As{UID: 54321, GID: 54322, Groups: []uint32{0}}, "", fault.Precondition, "root"},
		"a machine":  {&runtime.As{UID: 1879048192, GID: 54322}, "", fault.Precondition, "user"},
		"two users":  {submitter(0o022), "nobody", fault.Invalid, "user"},
		"a umask":    {&runtime.As{UID: 54321, GID: 54322, Umask: &mask}, "", fault.Invalid, "umask"},
		"a resource": {submitter(0o022, runtime.SoftLimit{Resource: "nice"}), "", fault.Invalid, "soft_limit"},
	} {
		s.As, s.User = c.as, c.user
		_, err := r.Start(t.Context(), s)
		for how, err := range map[string]error{"start": err, "check": r.Check(t.Context(), s)} {
			if !fault.Is(err, c.kind) || fault.CodeOf(err) != c.code {
				t.Errorf("%s, %s: %v; want %v with code %s", name, how, err, c.kind, c.code)
			}
		}
	}
	s.As, s.User = submitter(0o022), ""
	if os.Geteuid() != 0 {
		if _, err := r.Start(t.Context(), s); !fault.Is(err, fault.Precondition) || fault.CodeOf(err) != "user" {
			t.Errorf("without root: %v", err)
		}
	}
	process.ForgetAs(r)
	if _, err := r.Start(t.Context(), s); !fault.Is(err, fault.Precondition) || fault.CodeOf(err) != "protocol" {
		t.Errorf("by a reaper that does not know of users of the host: %v", err)
	}
	if got := r.Check(t.Context(), limited("m", 1, "/bin/true")); got != nil {
		t.Errorf("without a user, such a reaper does as ever: %v", got)
	}
}

// TestVolumeOfAUserOfTheHost: the user owns the volume that it is the first to have, and what it writes there; its
// limits and umask are the same in the machine's own mount namespace.
func TestVolumeOfAUserOfTheHost(t *testing.T) {
	asRoot(t)
	r := open(t, nil)
	vol := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(vol, 0o700); err != nil {
		t.Fatal(err)
	}
	as := submitter(0o077, runtime.SoftLimit{Resource: "nofile", Soft: 99})
	launch(t, r, runtime.Spec{Machine: "m", As: as, Env: []string{"PATH=/usr/bin:/bin"},
		Mounts: []runtime.Mount{{Volume: "v", Dir: vol, Path: "/soukas"}}})
	if got := said(t, r, "m", "touch /soukas/f && ulimit -S -n && umask"); got != "99\n0077" {
		t.Errorf("a command says %q", got)
	}
	for _, path := range []string{vol, filepath.Join(vol, "f")} {
		if uid := ownerOf(t, path); uid != 54321 {
			t.Errorf("%s belongs to %d", path, uid)
		}
	}
}

// TestUserIsNoPersonWherePeopleHaveTheirOwn: on a worker that serves the users of its host nobody else runs a program as
// one of them, or with a group of theirs.
func TestUserIsNoPersonWherePeopleHaveTheirOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has programs of other users")
	}
	for _, own := range []bool{true, false} {
		r := open(t, func(o *process.Options) { o.OwnUsersOnly = own })
		for i, user := range []string{"54321", "54321:54322", "1:54322", "daemon:54322", "nobody", "daemon", "33:33"} {
			id := fmt.Sprintf("m%v%d", own, i)
			s := limited(id, 1, self...)
			s.User = user
			if err := r.Prepare(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			_, err := r.Start(t.Context(), s)
			if refused := own && strings.Contains(user, "5432"); refused != (fault.CodeOf(err) == runtime.CodeUser) ||
				!refused && err != nil {
				t.Errorf("own users only: %v: --user %s: %v", own, user, err)
			}
		}
	}
}
