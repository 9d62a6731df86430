package runtime

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// As is the user of the host that a program of the host runs as. The worker has looked the user up there.
type As struct {
	UID    uint32      `json:"uid"`              // never 0
	GID    uint32      `json:"gid"`              // never 0
	Groups []uint32    `json:"groups,omitempty"` // supplementary groups, exactly these; never 0
	Umask  *uint32     `json:"umask,omitempty"`  // at most 0777; nil: the worker's own
	Limits []SoftLimit `json:"limits,omitempty"` // each resource once; empty: the worker's own
}

// SoftLimit is a soft limit of a process (setrlimit(2)). If the hard limit on the worker is lower, that one counts.
type SoftLimit struct {
	Resource string `json:"resource"` // one of LimitNames
	// Soft is in the unit of setrlimit(2): bytes, for cpu seconds, for nofile and nproc a number of them;
	// math.MaxUint64: unlimited.
	Soft uint64 `json:"soft"`
}

// maxGroups is the kernel's bound on supplementary groups (NGROUPS_MAX).
const maxGroups = 65536

// maxUmask has all bits that a umask can have.
const maxUmask = 0o777

// softLimits are the resources that a SoftLimit can name, as in limits.conf(5). Priorities (nice, rtprio) are missing
// on purpose: they are the worker's to decide.
var softLimits = []struct { //nolint:gochecknoglobals // a constant
	name   string
	number int
}{
	{"as", unix.RLIMIT_AS}, {"core", unix.RLIMIT_CORE}, {"cpu", unix.RLIMIT_CPU}, {"data", unix.RLIMIT_DATA},
	{"fsize", unix.RLIMIT_FSIZE}, {"memlock", unix.RLIMIT_MEMLOCK}, {"nofile", unix.RLIMIT_NOFILE},
	{"nproc", unix.RLIMIT_NPROC}, {"rss", unix.RLIMIT_RSS}, {"stack", unix.RLIMIT_STACK},
}

// LimitNames returns the resources that a SoftLimit can name, sorted.
func LimitNames() []string {
	out := make([]string, 0, len(softLimits))
	for _, l := range softLimits {
		out = append(out, l.name)
	}
	return out
}

// LimitNumber returns the number of a resource in setrlimit(2) (RLIMIT_NOFILE for "nofile"), and false for a name that
// is not one of LimitNames.
func LimitNumber(resource string) (number int, known bool) {
	for _, l := range softLimits {
		if l.name == resource {
			return l.number, true
		}
	}
	return 0, false
}

// Check refuses what is invalid on every host; user is Spec.User, and container says that the machine is a container.
// It accepts any numbers of users and groups: which of them may be used depends on the host. A nil As is accepted.
//
// Errors: Invalid "user", "umask" or "soft_limit".
func (a *As) Check(user string, container bool) error {
	switch {
	case a == nil:
		return nil
	case container:
		return fault.New(fault.Invalid, CodeUser, "only a program of the host runs as a user of the host (here user "+
			"%d), and the users of a container are those of its image: leave the user of the host out, or the image",
			a.UID)
	case user != "":
		return fault.New(fault.Invalid, CodeUser, "the machine is to run as user %.80q and as user %d of the host: "+
			"leave one of them out", user, a.UID)
	case len(a.Groups) > maxGroups:
		return fault.New(fault.Invalid, CodeUser, "a program has at most %d groups, not %d: leave some out", maxGroups,
			len(a.Groups))
	case a.Umask != nil && *a.Umask > maxUmask:
		return fault.New(fault.Invalid, CodeUmask, "a umask is an octal number up to 0777, such as 0027, not %#o",
			*a.Umask)
	}
	seen := make(map[string]bool, len(a.Limits))
	for _, l := range a.Limits {
		if _, known := LimitNumber(l.Resource); !known {
			return fault.New(fault.Invalid, CodeSoftLimit, "there is no soft limit %.80q: use %s", l.Resource,
				strings.Join(LimitNames(), ", "))
		}
		if seen[l.Resource] {
			return fault.New(fault.Invalid, CodeSoftLimit, "the soft limit %s is given twice: leave one out",
				l.Resource)
		}
		seen[l.Resource] = true
	}
	return nil
}
