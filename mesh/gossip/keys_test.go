package gossip

import (
	"fmt"
	"slices"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestKeyRotationInterruptsNobody: changes continue through all steps of a rotation and no member is declared dead; a
// member with only the old key is out afterwards.
func TestKeyRotationInterruptsNobody(t *testing.T) {
	next := []byte("fedcba9876543210")
	a := start(t, Options{Self: "a"})
	ms := []*member{a, start(t, Options{Self: "b"}, a), start(t, Options{Self: "c"}, a)}
	out := start(t, Options{Self: "out"}, a)
	waittest.Until(t, "all know all", func() bool { return len(a.View().Workers) == 4 && len(out.View().Workers) == 4 })
	n := 0
	talk := func(step string, who []*member) {
		t.Helper()
		for _, m := range who {
			n++
			m.machine(fmt.Sprintf("%014x", n), "started")
		}
		waittest.Until(t, "after "+step+" changes go on", func() bool {
			return !slices.ContainsFunc(who, func(m *member) bool { return len(m.Machines("app")) != n })
		})
	}
	for g, keys := range [][][]byte{{key, next}, {next, key}, {next}} {
		for i, m := range ms { // one after another: each pair of neighbouring steps talks
			if err := m.SetKeys(g+1, keys); err != nil {
				t.Fatal(err)
			}
			talk(fmt.Sprintf("step %d of %d members", g+1, i+1), ms)
		}
		waittest.Until(t, "each hears which keys the others have", func() bool {
			for _, m := range ms {
				for _, x := range m.Members() {
					if x.ID != "out" && x.Keys != g+1 {
						return false
					}
				}
			}
			return true
		})
	}
	waittest.Until(t, "who has the old key alone is not heard any more", func() bool {
		x, _ := a.Member("out")
		return x.State == cluster.MemberDead
	})
	if err := out.Join(t.Context(), []string{a.Addr()}); !fault.Is(err, fault.Unavailable) {
		t.Error("who has the old key alone could join:", err)
	}
	talk("all", ms)
	if got := len(out.Machines("app")); got >= n {
		t.Errorf("who has the old key alone heard of all %d changes", got)
	}
	if err := out.SetKeys(3, [][]byte{next}); err != nil {
		t.Fatal(err)
	}
	if err := out.Join(t.Context(), []string{a.Addr()}); err != nil {
		t.Error("with the new key it cannot come back:", err)
	}
	talk("the return", append(ms, out))
}

func TestInvalidKeysAreRefused(t *testing.T) {
	a := start(t, Options{Self: "a"})
	for _, keys := range [][][]byte{nil, {[]byte("short")}} {
		if err := a.SetKeys(1, keys); err == nil {
			t.Errorf("%q was taken", keys)
		}
	}
	open, err := New(Options{Self: "open"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.net.Shutdown() })
	if err := open.SetKeys(1, [][]byte{key}); !fault.Is(err, fault.Precondition) {
		t.Error(err)
	}
}

// TestKnockAnswersOnlyKeyHolders: a knock with a wrong key is not answered, and one with the right key adds no member.
func TestKnockAnswersOnlyKeyHolders(t *testing.T) {
	a := start(t, Options{Self: "a"})
	for what, want := range map[string]bool{string(key): true, "fedcba9876543210": false} {
		if got, err := Knock(t.Context(), a.Addr(), []byte(what)); err != nil || got != want {
			t.Errorf("answered: %v, not %v (%v)", got, want, err)
		}
	}
	if _, err := Knock(t.Context(), "127.0.0.1:1", key); !fault.Is(err, fault.Unavailable) {
		t.Error("nobody is there, and that is told as", err)
	}
	if n := len(a.Members()); n != 1 {
		t.Errorf("%d members", n)
	}
}

// TestAmendLosesToAConcurrentWrite: an object that is written anew with the same meaning loses to whoever has changed it meanwhile.
func TestAmendLosesToAConcurrentWrite(t *testing.T) {
	a := start(t, Options{Self: "a"})
	o, err := a.Objects().Put("secret", "x", 1, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Objects().Amend(o, []byte("sealed anew")); err != nil {
		t.Fatal(err)
	}
	if got, _ := a.Objects().Get("secret", "x"); string(got.Payload) != "sealed anew" || got.Schema != 1 {
		t.Errorf("%+v", got)
	}
	if _, err := a.Objects().Put("secret", "x", 1, []byte("newer")); err != nil {
		t.Fatal(err)
	}
	if err := a.Objects().Amend(o, []byte("of an old view")); err != nil {
		t.Fatal(err)
	}
	if got, _ := a.Objects().Get("secret", "x"); string(got.Payload) != "newer" {
		t.Errorf("what was written meanwhile is lost: %s", got.Payload)
	}
}
