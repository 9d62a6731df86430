package server

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestSoftMemoryLimitFollowsCgroup(t *testing.T) {
	dir := t.TempDir()
	own, group := filepath.Join(dir, "own"), filepath.Join(dir, "system.slice/souk.service")
	if err := os.MkdirAll(group, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		own, most string
		want      int64
	}{
		{"0::/system.slice/souk.service\n", "1000\n", 1000},
		{"4:memory:/a\n0::/system.slice/souk.service\n", "max\n", math.MaxInt64},
		{"0::/elsewhere\n", "1000\n", math.MaxInt64},
		{"4:memory:/a\n", "1000\n", math.MaxInt64},
	} {
		for file, text := range map[string]string{own: x.own, filepath.Join(group, "memory.max"): x.most} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupMemory(own, dir); got != x.want {
			t.Errorf("%q with %q: %d, want %d", x.own, x.most, got, x.want)
		}
	}
	if got := softLimit(8000, 1000); got != 900 {
		t.Errorf("a small cgroup: %d", got)
	}
	if got := softLimit(8000, math.MaxInt64); got != 4000 {
		t.Errorf("no cgroup: %d", got)
	}
}
