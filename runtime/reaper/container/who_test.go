package container

import (
	"testing"

	"github.com/soukhq/souk/runtime/reaper/spec"
)

// TestUnknownUserGetsItsPasswdLine: a user whose number the image lacks gets a line of its own, and no other.
func TestUnknownUserGetsItsPasswdLine(t *testing.T) {
	table := "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/srv:/bin/sh"
	own := "1234:x:1234:5:container user:/:/bin/sh\n"
	for name, c := range map[string]struct {
		table string
		who   spec.User
		want  string
	}{
		"root":       {table, spec.User{}, ""},
		"named":      {table, spec.User{UID: 33, GID: 7}, ""},
		"a number":   {table, spec.User{UID: 1234, GID: 5}, table + "\n" + own},
		"a line end": {table + "\n", spec.User{UID: 1234, GID: 5}, table + "\n" + own},
		"no table":   {"", spec.User{UID: 1234, GID: 5}, ""},
		"its name":   {"1234:x:7:7::/:/bin/sh\n", spec.User{UID: 1234, GID: 5}, ""},
	} {
		if got := withUser([]byte(c.table), c.who); string(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
