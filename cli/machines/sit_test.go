package machines

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestDetachKeysEndTheSessionAndPassNothingMore: what is typed comes through as it is but for the keys that leave, and nothing comes after those.
func TestDetachKeysEndTheSessionAndPassNothingMore(t *testing.T) {
	for _, c := range []struct {
		keys, typed, want string
		left              bool
	}{
		{"ctrl-p,ctrl-q", "echo\n", "echo\n", false},
		{"ctrl-p,ctrl-q", "a\x10\x11b", "a", true},
		{"ctrl-p,ctrl-q", "a\x10b\x11\x10", "a\x10b\x11", false}, // the last may yet become them
		{"ctrl-p,ctrl-q", "\x10\x10\x11", "\x10", true},
		{"a,a,b", "aaabc", "a", true},
		{"a,b,a,c", "ababac", "ab", true},
		{"ctrl-a,d", "x\x01d", "x", true},
		{"ctrl-]", "x\x1dy", "x", true},
		{"", "\x10\x11", "\x10\x11", false},
	} {
		keys, err := detachKeys(c.keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []io.Reader{strings.NewReader(c.typed), iotest.OneByteReader(strings.NewReader(c.typed)),
			iotest.DataErrReader(strings.NewReader(c.typed))} {
			told := false
			l := &leaver{from: from, keys: keys, leave: func() { told = true }}
			got, err := io.ReadAll(iotest.OneByteReader(l))
			if string(got) != c.want || err != nil || told != c.left || l.left.Load() != c.left {
				t.Errorf("%s: of %q came %q, left %v, %v; want %q, %v", c.keys, c.typed, got, told, err, c.want, c.left)
			}
		}
	}
	for _, bad := range []string{",", "ctrl-", "ctrl-1", "ctrl-p,", "ab", "ctrl-ab", " ", "é"} {
		if keys, err := detachKeys(bad); err == nil {
			t.Errorf("%q is %q", bad, keys)
		}
	}
}
