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

// Numbers of the host that stand for those inside of containers, beside a machine's own. They are nobody's: people,
// systemd and other containers have numbers below Within only.
const (
	// Within stands for 0 inside, Within + 1 for 1, and so on, WithinSize of them. All containers share these.
	Within     = First + ranges*size
	WithinSize = 1 << 16

	// Numbers inside from WithinSize up to farEnd stand for those from far up on the host, which are as many.
	farEnd = 1 << 31
	far    = math.MaxUint32 - (farEnd - WithinSize)

	// The last numbers inside, among which is the nobody of NFS, stand for those from lastOutside up, which end at far.
	last        = 0xFFFF0000
	lastOutside = far - (math.MaxUint32 - last)
)

// ID maps Size numbers from Inside up to those from Outside up, of users and of groups.
type ID struct {
	Inside, Outside, Size uint32
}

// Numbers returns what stands on the host for the numbers inside of a machine: its root is uid. There are not enough
// for all 2^32: those from 2^31 up to 0xFFFF0000 have none, and are seen as the kernel's nobody (65534) inside. Where
// souk itself is in a user namespace that lacks a part, so do its machines.
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

// Outside returns what stands on the host for a number inside.
func Outside(ids []ID, n uint32) (int, bool) {
	for _, m := range ids {
		if n >= m.Inside && n-m.Inside < m.Size {
			return int(m.Outside + (n - m.Inside)), true
		}
	}
	return 0, false
}

// Inside returns what a number of the host stands for.
func Inside(ids []ID, n uint32) (uint32, bool) {
	for _, m := range ids {
		if n >= m.Outside && n-m.Outside < m.Size {
			return m.Inside + (n - m.Outside), true
		}
	}
	return 0, false
}

// hostHas reports whether souk's own user namespace has numbers, both as users and as groups.
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

// Translate gives what is below a directory, and that itself, the numbers inside instead of those of the host: a
// machine's own becomes 0. The directory comes last. Done again, it changes nothing.
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

// numberInside is the number inside of a machine that one of the host's stands for where the kernel shows both alike.
func numberInside(n uint32) int {
	if n >= First && n < Within {
		return 0
	}
	return int(n)
}
