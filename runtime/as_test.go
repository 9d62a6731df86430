package runtime_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// TestInvalidUsersOfTheHostAreRefused: what no host can give a program.
func TestInvalidUsersOfTheHostAreRefused(t *testing.T) {
	mask := func(m uint32) *uint32 { return &m }
	limit := func(names ...string) (out []runtime.SoftLimit) {
		for _, n := range names {
			out = append(out, runtime.SoftLimit{Resource: n, Soft: math.MaxUint64})
		}
		return out
	}
	for name, c := range map[string]struct {
		as        *runtime.As
		user      string
		container bool
		code      fault.Code // "": it is accepted
		says      string
	}{
		"none":    {nil, "root", true, "", ""},
		"numbers": {&runtime.As{UID: 1000, GID: 1000, Groups: []uint32{27}}, "", false, "", ""},
		"all limits": {&runtime.As{Limits: limit(runtime.LimitNames()...), Umask: mask(0o777)}, "", false, "",
			""},
		"with a user":       {&runtime.As{UID: 7}, "nobody", false, "user", `"nobody" and as user 7`},
		"of a container":    {&runtime.As{UID: 7}, "nobody", true, "user", "those of its image"},
		"too many groups":   {&runtime.As{Groups: make([]uint32, 65537)}, "", false, "user", "at most 65536 groups"},
		"a umask":           {&runtime.As{Umask: mask(0o1000)}, "", false, "umask", "not 01000"},
		"an unknown limit":  {&runtime.As{Limits: limit("nice")}, "", false, "soft_limit", `"nice": use as, core`},
		"a limit by number": {&runtime.As{Limits: limit("7")}, "", false, "soft_limit", `"7"`},
		"a limit twice": {&runtime.As{Limits: limit("core", "cpu", "core")}, "", false, "soft_limit",
			"core is given"},
	} {
		err := c.as.Check(c.user, c.container)
		if c.code == "" && err == nil {
			continue
		}
		if fault.CodeOf(err) != c.code || !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want code %q and %q", name, err, c.code, c.says)
		}
	}
}

func TestLimitNamesAreThoseOfLimitsConf(t *testing.T) {
	names := runtime.LimitNames()
	want := []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	seen := map[int]bool{}
	for _, n := range names {
		number, known := runtime.LimitNumber(n)
		if !known || seen[number] {
			t.Errorf("%s is %d, %v", n, number, known)
		}
		seen[number] = true
	}
}
