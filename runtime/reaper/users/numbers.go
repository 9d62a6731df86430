package users

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Numbers on the host for users inside of containers, besides a machine's own number. Nobody else uses them: people,
// systemd and other containers have numbers below Within only.
const (
	// Within is the number on the host for 0 inside, Within + 1 for 1, and so on, WithinSize of them. All containers
	// share these.
	Within     = First + ranges*size
	WithinSize = 1 << 16

	// The numbers inside from WithinSize to below farEnd are mapped to those from far on the host.
	farEnd = 1 << 31
	far    = math.MaxUint32 - (farEnd - WithinSize)

	// The last numbers inside (NFS's nobody is among them) are mapped to those from lastOutside on, which end at far.
	last        = 0xFFFF0000
	lastOutside = far - (math.MaxUint32 - last)
)

// ID maps Size numbers, of users and of groups, starting at Inside to those starting at Outside.
type ID struct {
	Inside, Outside, Size uint32
}

// Numbers returns how the numbers inside of a machine map to those of the host: the machine's root is uid. The host has
// too few numbers for all 2^32: those from 2^31 to below 0xFFFF0000 are not mapped, and appear inside as the kernel's
// nobody (65534). Where souk itself is in a user namespace that lacks some of the numbers, its machines lack them too.
func Numbers(uid int) []ID { return idsWithin(hostHas(), uid) }

func idsWithin(has func(first, size uint32) bool, uid int) []ID {
	out := []ID{
		{Inside: 0, Outside: uint32(uid), Size: 1}, //nolint:gosec // a number of the pool
		{Inside: 1, Outside: Within + 1, Size: WithinSize - 1},
	}
	more := []ID{
		{Inside: WithinSize, Outside: far, Size: farEnd - WithinSize},
		{Inside: last, Outside: lastOutside, Size: math.MaxUint32 - last},
	}
	for _, m := range more {
		if has(m.Outside, m.Size) {
			out = append(out, m)
		}
	}
	return out
}

// Outside returns the number on the host for a number inside.
func Outside(ids []ID, n uint32) (int, bool) {
	for _, m := range ids {
		if n >= m.Inside && n-m.Inside < m.Size {
			return int(m.Outside + (n - m.Inside)), true
		}
	}
	return 0, false
}

// Inside returns the number inside for a number of the host.
func Inside(ids []ID, n uint32) (uint32, bool) {
	for _, m := range ids {
		if n >= m.Outside && n-m.Outside < m.Size {
			return m.Inside + (n - m.Outside), true
		}
	}
	return 0, false
}

// hostHas reports whether souk's own user namespace has a range of numbers, both as users and as groups.
var hostHas = sync.OnceValue(func() func(first, size uint32) bool { //nolint:gochecknoglobals // it does not change
	var maps [2][]ID
	for i, name := range []string{"uid_map", "gid_map"} {
		raw, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			var m ID
			if n, err := fmt.Sscan(line, &m.Inside, &m.Outside, &m.Size); n == 3 && err == nil {
				maps[i] = append(maps[i], m)
			}
		}
	}
	return func(first, size uint32) bool {
		for _, all := range maps {
			if !slices.ContainsFunc(all, func(m ID) bool {
				return first >= m.Inside && first-m.Inside < m.Size && size <= m.Size-(first-m.Inside)
			}) {
				return false
			}
		}
		return true
	}
})

// Translate changes the owners of a directory and its contents from the host's numbers to the numbers inside: a
// machine's own number becomes 0. The directory itself is changed last. Repeating it changes nothing.
func Translate(dir string) error {
	c := chowning{owners: translatedIDs, bits: true}
	if err := c.chownTree(dir); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	uid, gid := translatedIDs(st.Uid, st.Gid)
	return os.Chown(dir, uid, gid)
}

func translatedIDs(uid, gid uint32) (newUID, newGID int) { return numberInside(uid), numberInside(gid) }

// numberInside returns the number inside for a number of the host, where the kernel shows files without an id map.
func numberInside(n uint32) int {
	if n >= First && n < Within {
		return 0
	}
	return int(n)
}
