package reaper

import (
	"errors"
	"os"
	"testing"

	"github.com/soukhq/souk/runtime/reaper/users"
)

// TestUserNamespacesAreCached: one is made for each mapping, the last ones are kept, and what is given out is the caller's.
func TestUserNamespacesAreCached(t *testing.T) {
	made := 0
	n := &namespaces{make: func([]users.ID) (*os.File, error) {
		made++
		return os.Open("/proc/self/ns/user")
	}}
	use := func(uid int) {
		t.Helper()
		f, err := n.openNamespace([]users.ID{{Outside: uint32(uid), Size: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Stat(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, uid := range []int{1, 2, 1, 1, 2} {
		use(uid)
	}
	if made != 2 {
		t.Errorf("for two mappings %d were made", made)
	}
	for uid := 3; len(n.latest) < maxNamespaces; uid++ {
		use(uid)
	}
	use(1)
	use(-1) // 2 goes, which was asked for first
	before := made
	use(1)
	use(2)
	if made != before+1 || len(n.latest) != maxNamespaces {
		t.Errorf("%d more were made, and %d are kept", made-before, len(n.latest))
	}
	n.make = func([]users.ID) (*os.File, error) { return nil, errors.New("no") }
	if _, err := n.openNamespace([]users.ID{{Outside: 7777, Size: 1}}); err == nil {
		t.Error("one that could not be made was given out")
	}
}
