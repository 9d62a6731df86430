package devices

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// AnyMinor matches all minor numbers of a major number.
const AnyMinor = -1

// Number is the kernel's number of a device; nodes with different names may have it.
type Number struct {
	Block bool  `json:"block,omitempty"`
	Major int64 `json:"major"`
	Minor int64 `json:"minor"` // or AnyMinor
}

// Denied is a list of devices that a cgroup may neither open nor make nodes of. It is text, one device a line in the
// format of cgroup v1 ("c 195:0"), so that limits can be compared. The zero value denies nothing.
type Denied string

// Deny lists devices, sorted and without duplicates.
func Deny(nodes []Number) Denied {
	all := slices.Clone(nodes)
	slices.SortFunc(all, func(a, b Number) int {
		if a.Block != b.Block {
			if a.Block {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	lines := make([]string, 0, len(all))
	for _, n := range slices.Compact(all) {
		kind, minor := "c", strconv.FormatInt(n.Minor, 10)
		if n.Block {
			kind = "b"
		}
		if n.Minor == AnyMinor {
			minor = "*"
		}
		lines = append(lines, kind+" "+strconv.FormatInt(n.Major, 10)+":"+minor)
	}
	return Denied(strings.Join(lines, "\n"))
}
