package users

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/deadfs"
	"github.com/soukhq/souk/internal/wait/waittest"
)

func openFor(t *testing.T, dir, claims string, used ...int) *Pool {
	t.Helper()
	p, err := openPool(dir, claims, used, func(int, int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func take(t *testing.T, p *Pool) int {
	t.Helper()
	uid, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

// TestWorkersHaveDisjointIDRanges: workers of one host have ranges of their own, whether one was copied, moved or started
// again.
func TestWorkersHaveDisjointIDRanges(t *testing.T) {
	claims, dirs := filepath.Join(t.TempDir(), "claims"), t.TempDir()
	dir := func(name string) string {
		d := filepath.Join(dirs, name)
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		return d
	}
	seen := map[int]string{}
	note := func(who string, p *Pool) int {
		uid := take(t, p)
		if was, twice := seen[uid]; twice || !Is(uid) {
			t.Errorf("%s and %s have the number %d", who, was, uid)
		}
		seen[uid] = who
		return p.rec.Range
	}
	a := note("a", openFor(t, dir("a"), claims))
	if again := note("a again", openFor(t, dir("a"), claims)); again != a {
		t.Errorf("started again it has range %d, had %d", again, a)
	}
	raw, err := os.ReadFile(filepath.Join(dirs, "a", recordFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir("copy"), recordFile), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c := note("a copy", openFor(t, dir("copy"), claims)); c == a {
		t.Error("a copy has the range of the original")
	}
	if err := os.Rename(dir("a"), filepath.Join(dirs, "moved")); err != nil {
		t.Fatal(err)
	}
	if m := note("moved", openFor(t, dir("moved"), claims)); m != a {
		t.Errorf("moved it has range %d, had %d", m, a)
	}
	for i := range 20 {
		name := fmt.Sprintf("w%d", i)
		note(name, openFor(t, dir(name), claims))
	}
	if err := os.RemoveAll(dir("w3")); err != nil {
		t.Fatal(err)
	}
}

// TestUserIDIsReusedLastAndOnlyWhenClean: not while its machine is there, and only once it was looked for what is left.
func TestUserIDIsReusedLastAndOnlyWhenClean(t *testing.T) {
	looked := map[int]int{}
	p, err := openPool(t.TempDir(), filepath.Join(t.TempDir(), "claims"), nil, func(low, high int) error {
		looked[(low-First)%size/block]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first := take(t, p)
	for i := 1; i < size; i++ {
		uid := take(t, p)
		if uid != first+i {
			t.Fatalf("number %d is %d", i, uid)
		}
		p.Give(uid)
	}
	if len(looked) != 0 {
		t.Errorf("it was looked for what is left of numbers that nobody had: %v", looked)
	}
	if uid := take(t, p); uid != first+1 || looked[0] != 1 {
		t.Errorf("behind the last comes %d, first is %d and its machine lives; looked %v", uid, first, looked)
	}
}

// TestUserIDWithUnknownFilesIsNotReused: a number is not given out when it cannot be told what it owns.
func TestUserIDWithUnknownFilesIsNotReused(t *testing.T) {
	dir, claims := t.TempDir(), filepath.Join(t.TempDir(), "claims")
	openFor(t, dir, claims)
	p, err := openPool(dir, claims, nil, func(int, int) error { return errors.New("no") })
	if err != nil {
		t.Fatal(err)
	}
	p.rec.Again = true
	for range block {
		p.next = block
		if _, err := p.Take(); err == nil {
			t.Fatal("a number is given out")
		}
		return
	}
}

// TestDisownGivesDeadUsersFilesToRoot gives to root what dead users have in a directory, and nothing else.
func TestDisownGivesDeadUsersFilesToRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root")
	}
	dir := t.TempDir()
	dead, alive := First+5, First+6
	for name, uid := range map[string]int{"dead": dead, "alive": alive, "other": 12} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	c := chowning{owners: ownersTo(0, 0, func(u uint32) bool { return int(u) == dead }), lenient: true}
	if err := c.chownTree(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"dead": 0, "alive": alive, "other": 12} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != want {
			t.Errorf("%s: %v, %v; want user %d", name, st.Sys(), err, want)
		}
	}
}

// TestMountThatDoesNotAnswerIsNotAsked: the search for leftover files does not wait for it.
func TestMountThatDoesNotAnswerIsNotAsked(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	_, abort := deadfs.Mount(t, dead, 54321)
	found := make(chan error, 1)
	go func() {
		c := chowning{owners: ownersTo(0, 0, func(uint32) bool { return true }), lenient: true}
		found <- c.chownTree(dir)
	}()
	select {
	case err := <-found:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(waittest.Patience):
		t.Error("it waits")
		abort()
		<-found
	}
}

// TestSharedDirectoriesAreNotTakenOver: a directory like /tmp is given to nobody, nor is anything in it.
func TestSharedDirectoriesAreNotTakenOver(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "of root")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := HandOver(dir, First, First); !fault.Is(err, fault.Precondition) {
		t.Error(err)
	}
	for _, path := range []string{dir, file} {
		st, err := os.Stat(path)
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			t.Errorf("%s: %+v, %v", path, st, err)
		}
	}
}
