package process_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
)

// otherBuild copies this program to one that counts as another build.
func otherBuild(t *testing.T) string {
	t.Helper()
	src, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	path := filepath.Join(t.TempDir(), "other.test")
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReaperUpgradeLosesNothing: a new build takes the old reaper's place while machines run; no machine, line, exit or environment is
// lost, and the reaper keeps its pid.
func TestReaperUpgradeLosesNothing(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	old := o
	old.ReaperCommand = []string{otherBuild(t)}
	r := reopen(t, old)
	pid := reaperPID(t, o.Dir)
	exe := func() string {
		to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	before := exe()
	ticker := start(t, r, script("ticker", 1, `i=0; while :; do i=$((i+1)); echo $i; sleep 0.005; done`))
	paused := start(t, r, limited("paused", 1, lasting...))
	if err := r.Pause(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	start(t, r, script("later", 1, `printf half; sleep 0.7; echo ' whole'; exit 42`))
	start(t, r, script("over", 1, `exit 6`))
	next(t, r, "over")
	waittest.See(t, "there is output", func() int { return len(texts(t, r, "ticker")) },
		func(lines int) bool { return lines > 10 })
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r = reopen(t, o)
	if now := exe(); now == before || reaperPID(t, o.Dir) != pid {
		t.Fatalf("the reaper %d is %s, was %s", pid, now, before)
	}
	if x := next(t, r, "over"); x.Code != 6 {
		t.Errorf("%+v", x)
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, s := range all {
		switch s.Machine {
		case "ticker":
			if s.PID != ticker.PID || !s.StartedAt.Equal(ticker.StartedAt) {
				t.Errorf("%+v, was %+v", s, ticker)
			}
		case "paused":
			if s.PID != paused.PID || !s.Paused {
				t.Errorf("%+v, was %+v", s, paused)
			}
		}
	}
	if x := next(t, r, "later"); x.Code != 42 || x.Lost {
		t.Errorf("%+v", x)
	}
	var said bytes.Buffer
	for _, l := range texts(t, r, "later") {
		said.WriteString(l)
	}
	if said.String() != "half whole" {
		t.Errorf("an unfinished line became %q", &said)
	}
	n := len(texts(t, r, "ticker"))
	waittest.See(t, "output goes on", func() int { return len(texts(t, r, "ticker")) },
		func(lines int) bool { return lines > n+10 })
	for i, l := range texts(t, r, "ticker") {
		if l != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, l)
		}
	}
	var out bytes.Buffer
	if _, err := r.Exec(t.Context(), "ticker",
		runtime.ExecRequest{Argv: []string{"sh", "-c", "echo $FLY_MACHINE_ID; ls /proc/self/fd | wc -l"},
			Stdout: &out}); err != nil || out.String() != "ticker\n4\n" {
		t.Errorf("%q, %v", &out, err)
	}
	if err := r.Resume(t.Context(), "paused"); err != nil {
		t.Error(err)
	}
	if err := r.Kill(t.Context(), "paused"); err != nil {
		t.Error(err)
	}
	if x := next(t, r, "paused"); x.Signal != 9 {
		t.Errorf("%+v", x)
	}
	if said, err := os.ReadFile(log.Name()); err != nil || len(said) > 0 {
		t.Errorf("nothing was wrong, and yet it says: %s%v", said, err)
	}
}

// TestFailedReaperUpgradeChangesNothing: when the new program cannot be executed, the old reaper goes on as if nothing had been.
func TestFailedReaperUpgradeChangesNothing(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	o.ReaperCommand = []string{otherBuild(t)}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	start(t, r, script("ticker", 1, `i=0; while :; do i=$((i+1)); echo $i; sleep 0.005; done`))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]string{{"/no/such/program"}, {notProgram(t)}} {
		broken := o
		broken.ReaperCommand = bad
		r = reopen(t, broken)
		n := len(texts(t, r, "ticker"))
		waittest.See(t, "output goes on", func() int { return len(texts(t, r, "ticker")) },
			func(lines int) bool { return lines > n+10 })
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r = reopen(t, o)
	for i, l := range texts(t, r, "ticker") {
		if l != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, l)
		}
	}
}

// notProgram may be executed but cannot be.
func notProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(path, []byte("\x7fELF but no more"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
