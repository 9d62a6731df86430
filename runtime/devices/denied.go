package devices

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// AnyMinor stands for each node of a major number.
const AnyMinor = -1

// Number is a device as the kernel knows it, whatever its nodes are called.
type Number struct {
	Block bool  `json:"block,omitempty"`
	Major int64 `json:"major"`
	Minor int64 `json:"minor"` // may be AnyMinor
}

// Denied is a list of devices that a group may not use: not open, and not make nodes of. It is a text, so that limits
// can be compared, one device a line, as cgroup v1 spells it: "c 195:0". The zero value denies nothing.
type Denied string

// Deny lists devices. Each counts once, in whatever order they come.
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
