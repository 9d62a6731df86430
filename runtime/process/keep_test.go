package process_test

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
)

// filesBelow lists what is below a directory, sorted, directories with a slash.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if p != dir && err == nil {
			rel, _ := filepath.Rel(dir, p)
			if d.IsDir() {
				rel += "/"
			}
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

// TestKeepFilesMovesWhatMatches: whole directories and single files, no symlink is followed, and again it changes
// nothing.
func TestKeepFilesMovesWhatMatches(t *testing.T) {
	r := open(t, nil)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `mkdir -p res/deep/er logs/a logs/b; echo 1 > res/deep/er/x; echo 2 > logs/a/1.log; echo 3 > logs/b/2.log
		echo 4 > logs/b/no.txt; echo 5 > out-1.csv; ln -s ` + outside + ` away; ln -s ` + outside + `/secret out-2.csv`
	start(t, r, runtime.Spec{Machine: "m1", Attempt: 1, Fresh: true, Image: "souk/host",
		Argv: []string{"/bin/sh", "-c", script}, SwapMB: -1})
	if x := next(t, r, "m1"); x.Code != 0 {
		t.Fatalf("%+v", x)
	}
	to := filepath.Join(filepath.Dir(process.DirOf(r)), "kept")
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	patterns := []string{"logs/*/*.log", "res", "out-*.csv", "away/secret", "none/*", "res/deep/*"}
	const want = "logs/ logs/a/ logs/a/1.log logs/b/ logs/b/2.log out-1.csv out-2.csv res/ res/deep/ res/deep/er/ " +
		"res/deep/er/x"
	for range 2 {
		if err := r.KeepFiles(t.Context(), "m1", patterns, to); err != nil {
			t.Fatal(err)
		}
		if got := filesBelow(t, to); got != want {
			t.Fatalf("kept %s", got)
		}
	}
	if st, err := os.Lstat(filepath.Join(to, "out-2.csv")); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the symlink: %v, %v", st, err)
	}
	if err := r.KeepFiles(t.Context(), "m2", patterns, to); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// TestShownFilesAreTheMachines: it finds them in its directory, can run them, and cannot change them.
func TestShownFilesAreTheMachines(t *testing.T) {
	r := open(t, nil)
	tree := filepath.Join(filepath.Dir(process.DirOf(r)), "tree")
	for name, mode := range map[string]os.FileMode{"run": 0o555, "data/a": 0o444, "data/sub/b": 0o444} {
		p := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil { //nolint:gosec // as package sent
			t.Fatal(err)
		}
		text := "alpha\n"
		if name == "run" {
			text = "#!/bin/sh\ncat data/a data/l; cat data/sub/b; echo changed 2>/dev/null > data/a; rm data/sub/b; " +
				"mkdir data/new; pwd > data/new/x\n"
		}
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/b", filepath.Join(tree, "data/l")); err != nil {
		t.Fatal(err)
	}
	start(t, r, runtime.Spec{Machine: "m1", Attempt: 1, Fresh: true, Image: "souk/host", Argv: []string{"./run"},
		SwapMB: -1, Shown: []runtime.Shown{{Dir: tree}}})
	if x := next(t, r, "m1"); x.Code != 0 {
		t.Fatalf("%+v: %s", x, texts(t, r, "m1"))
	}
	if got := filesBelow(t, tree); got != "data/ data/a data/l data/sub/ data/sub/b run" {
		t.Errorf("the worker's own files are now %s", got)
	}
	if b, err := os.ReadFile(filepath.Join(tree, "data/a")); err != nil || string(b) != "alpha\n" {
		t.Errorf("%q, %v", b, err)
	}
	a, b := inode(t, filepath.Join(tree, "run")), inode(t, filepath.Join(process.DirOf(r), "machines/m1/run"))
	if a != b {
		t.Error("the file was copied, not linked")
	}
	if err := r.Remove(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "only the worker's own link is left", func() bool {
		return stat(t, filepath.Join(tree, "run")).Nlink == 1
	})
}

func inode(t *testing.T, p string) uint64 { return stat(t, p).Ino }

func stat(t *testing.T, p string) *syscall.Stat_t {
	t.Helper()
	st, err := os.Lstat(p)
	if err != nil {
		t.Fatal(err)
	}
	sys, _ := st.Sys().(*syscall.Stat_t)
	return sys
}
