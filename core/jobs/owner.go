package jobs

import (
	"path"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Owner is who a job belongs to. The gateway sets it from the token or the socket that the job came by, whatever the
// client sends.
type Owner struct {
	// User is the Unix user that its tasks run as. Only this user and admins may change the job, or read its
	// environment and output. nil: the job belongs to its app, and each task has a user of its own.
	User *cluster.UnixUser `json:"user,omitempty"`
	// By is the name of the token that it was submitted with, or of the Unix user of the socket.
	By string `json:"by,omitempty"`
}

// Name returns what lists show: the Unix user, or else whose token it was.
func (o *Owner) Name() string {
	if o.User != nil {
		return o.User.Name
	}
	return o.By
}

// Propagated is what the tasks of a Unix user's job inherit from the shell that it was submitted in, as with Slurm
// (PropagateResourceLimits, and the umask of sbatch). A nice value does not travel.
type Propagated struct {
	Umask *uint32 `json:"umask,omitempty"` // permission bits that new files lack; nil: 022
	// Limits are soft limits by the names of limits.conf(5), such as nofile; Unlimited: none. A worker lowers them to
	// its own hard limits.
	Limits map[string]int64 `json:"limits,omitempty"`
	// SharedDir is the directory that the job was submitted in, if it is on a file system that hosts share: the tasks
	// start there, unless the job says where, or is sent files, or keeps some.
	SharedDir string `json:"shared_dir,omitempty"`
}

// Unlimited is the value of a limit that is none.
const Unlimited = -1

// LimitNames returns the names of the limits that travel, sorted.
func LimitNames() []string {
	return []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack"}
}

// maxUmask has all bits that a umask can.
const maxUmask = 0o777

// check refuses what no process can have.
func (h *Propagated) checkPropagated() error {
	if h.Umask != nil && *h.Umask > maxUmask {
		return fault.New(fault.Invalid, fault.CodeJob, "a umask is from 0 to 0777, not %#o", *h.Umask)
	}
	if d := h.SharedDir; d != "" && (!path.IsAbs(d) || path.Clean(d) != d || !isPath(d)) {
		return fault.New(fault.Invalid, fault.CodeJob, "the directory that a job is submitted in has an absolute "+
			"path, not %.80q", d)
	}
	for name, n := range h.Limits {
		if !slices.Contains(LimitNames(), name) {
			return fault.New(fault.Invalid, fault.CodeJob, "%.40q is no limit of a process; use one of %q", name,
				LimitNames())
		}
		if n < Unlimited {
			return fault.New(fault.Invalid, fault.CodeJob, "the limit %s is from 0 up, or %d for none, not %d", name,
				Unlimited, n)
		}
	}
	return nil
}
