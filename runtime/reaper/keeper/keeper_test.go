package keeper_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/keeper"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(keeper.EnvKeep); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := keeper.Run(ctx, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// nursery starts keepers and sees them end.
type nursery struct {
	*testing.T
	dir string
	all []*exec.Cmd
}

func (n *nursery) open() (*keeper.Keeper, map[string]*os.File) {
	n.Helper()
	k, kept, err := keeper.Open(n.dir, os.Args[:1], os.Environ(), func(cmd *exec.Cmd) (int, error) {
		cmd.Stderr = os.Stderr
		n.all = append(n.all, cmd)
		n.Cleanup(func() { _ = cmd.Process.Kill() }) // of one that has not ended by itself
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err != nil {
		n.Fatal(err)
	}
	return k, kept
}

// gone waits until the keeper that was started as the i-th has ended by itself.
func (n *nursery) gone(i int) {
	n.Helper()
	if err := n.all[i].Wait(); err != nil {
		n.Errorf("keeper %d: %v", i, err)
	}
}

func (n *nursery) terminal() (near, far *os.File) {
	n.Helper()
	near, far, err := pty.Open(machine.WindowSize{Rows: 2, Cols: 3})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return near, far
}

func (n *nursery) keep(k *keeper.Keeper, name string, near *os.File) {
	n.Helper()
	if err := k.Keep(name, near); err != nil {
		n.Fatal(err)
	}
}

// same says that what was written to far comes out of near.
func (n *nursery) same(near, far *os.File) {
	n.Helper()
	if near == nil {
		n.Fatal("it was not kept")
	}
	if _, err := far.WriteString("x"); err != nil {
		n.Fatal(err)
	}
	got := make([]byte, 1)
	if _, err := near.Read(got); err != nil || string(got) != "x" {
		n.Errorf("read %q, %v", got, err)
	}
}

// TestKeeperHoldsTerminalsAcrossReapers: the one reaper has terminals kept, the next gets them; the keeper ends with the last, and never before.
func TestKeeperHoldsTerminalsAcrossReapers(t *testing.T) {
	n := &nursery{T: t, dir: t.TempDir()}
	k, kept := n.open()
	if len(kept) != 0 || len(n.all) != 0 {
		t.Fatalf("kept %v by %d", kept, len(n.all))
	}
	one, oneFar := n.terminal()
	two, twoFar := n.terminal()
	n.keep(k, "one", one)
	n.keep(k, "two", two)
	if err := k.Lose(); err != nil { // as when the reaper is killed
		t.Fatal(err)
	}
	_, _ = one.Close(), two.Close() // checked by what follows
	k, kept = n.open()
	if got := k.Names(); !slices.Equal(got, []string{"one", "two"}) || len(n.all) != 1 {
		t.Fatalf("kept %v by %d", got, len(n.all))
	}
	n.same(kept["one"], oneFar)
	n.same(kept["two"], twoFar)
	k.Drop("none")
	k.Drop("one")
	if err := k.Lose(); err != nil {
		t.Fatal(err)
	}
	k, kept = n.open()
	if len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	n.same(kept["two"], twoFar)
	k.Drop("two")
	if err := k.Gone(t.Context()); err != nil {
		t.Error(err)
	}
	n.gone(0)
	if _, kept = n.open(); len(kept) != 0 {
		t.Fatalf("kept %v", kept)
	}
}

// TestStuckKeeperIsReplaced: a keeper that was killed, or that does not answer any more, is replaced by one that has all of it but
// what no program has any more; and the one before goes.
func TestStuckKeeperIsReplaced(t *testing.T) {
	n := &nursery{T: t, dir: t.TempDir()}
	k, _ := n.open()
	one, oneFar := n.terminal()
	closed, _ := n.terminal()
	n.keep(k, "one", one)
	n.keep(k, "closed", closed)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Lose(); err != nil {
		t.Fatal(err)
	}
	two, twoFar := n.terminal()
	n.keep(k, "two", two) // by another one
	n.gone(0)
	if err := n.all[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.all[1].Wait() // killed
	three, _ := n.terminal()
	n.keep(k, "three", three)
	if err := k.Lose(); err != nil {
		t.Fatal(err)
	}
	k, kept := n.open()
	if got := k.Names(); !slices.Equal(got, []string{"one", "three", "two"}) || len(n.all) != 3 {
		t.Fatalf("kept %v by %d", got, len(n.all))
	}
	n.same(kept["one"], oneFar)
	n.same(kept["two"], twoFar)
	for _, name := range k.Names() {
		k.Drop(name)
	}
	n.gone(2)
	_, far := n.terminal()
	if err := k.Keep("no terminal", far); err != nil { // it is no matter what it is
		t.Fatal(err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Keep("closed", far); err == nil {
		t.Error("what is closed is kept")
	}
	k.Drop("no terminal")
	n.gone(3)
}
