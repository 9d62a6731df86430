package users

import (
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func all(uint32, uint32) bool { return true }

// Numbers inside lead out and back, no two to the same, and to none that a person or another machine has.
func TestUserIDMappingIsInvertible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := rapid.IntRange(First, Within-1).Draw(t, "root")
		ids := idsWithin(all, root)
		n := rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{0, 1, 999, 65534, 65535, 65536, 70000,
			farEnd - 1, farEnd, last - 1, last, math.MaxUint32 - 1, math.MaxUint32})).Draw(t, "n")
		out, ok := Outside(ids, n)
		wanted := n < farEnd || n >= last && n < math.MaxUint32
		if ok != wanted {
			t.Fatalf("%d inside is %d outside, %v", n, out, ok)
		}
		if !ok {
			return
		}
		if n != 0 && (out < Within || out >= math.MaxUint32) || n == 0 && out != root {
			t.Errorf("%d inside is %d outside, which may be somebody's", n, out)
		}
		if back, ok := Inside(ids, uint32(out)); !ok || back != n {
			t.Errorf("%d inside is %d outside, which is %d inside", n, out, back)
		}
		if !Is(out) {
			t.Errorf("%d is not known for a machine's number", out)
		}
	})
}

// A souk in a user namespace that has not all numbers gives its machines what it has.
func TestSmallUserNamespaceGivesWhatItHas(t *testing.T) {
	few := idsWithin(func(first, size uint32) bool { return first+size <= lastOutside }, First)
	if len(few) != 2 {
		t.Errorf("%+v", few)
	}
}

// TestTranslateIsIdempotentAndKeepsModes: what was the host's numbers becomes those inside, also when it is done twice; modes stay.
func TestTranslateIsIdempotentAndKeepsModes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root")
	}
	dir := t.TempDir()
	for name, n := range map[string]int{"root": First + 7, "web": 33, "host": 1000} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(at, n, n); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(at, 0o6750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, 999, First+7); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Translate(dir); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]uint32{"root": 0, "web": 33, "host": 1000} {
			st, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			sys := st.Sys().(*syscall.Stat_t)
			if sys.Uid != want || sys.Gid != want || sys.Mode&0o7777 != 0o6750 {
				t.Errorf("%s belongs to %d:%d with mode %o", name, sys.Uid, sys.Gid, sys.Mode)
			}
		}
	}
	st, err := os.Stat(dir)
	if err != nil || st.Sys().(*syscall.Stat_t).Uid != 999 || st.Sys().(*syscall.Stat_t).Gid != 0 {
		t.Errorf("the directory: %+v, %v", st.Sys(), err)
	}
}
