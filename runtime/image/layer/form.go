package layer

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Form is how whiteouts, opaque directories and owners are written. It depends on the process's rights and the file
// system.
type Form struct {
	Xattrs string // prefix of overlayfs's attributes: "trusted.overlay." or, with its option userxattr, "user.overlay."
	Owners bool   // set the owners of files
}

// User reports whether overlayfs needs its option userxattr to read this form.
func (f Form) User() bool { return f.Xattrs == userForm }

const (
	trustedForm = "trusted.overlay."
	userForm    = "user.overlay."
	opaque      = "opaque"
)

// Probe determines the form in which this process can write layers below a directory.
func Probe(dir string) (Form, error) {
	tmp, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return Form{}, onDisk(err, "write in %s", dir)
	}
	defer os.RemoveAll(tmp)
	f := Form{Owners: os.Geteuid() == 0}
	for _, f.Xattrs = range []string{trustedForm, userForm} {
		if unix.Lsetxattr(tmp, f.Xattrs+opaque, []byte("y"), 0) == nil {
			if err := unix.Mknod(tmp+"/whiteout", unix.S_IFCHR, 0); err == nil {
				return f, nil
			}
		}
	}
	return f, fault.New(fault.Precondition, codeImageOverlay,
		"the file system of %s cannot hold what overlayfs needs (extended attributes, whiteouts); put the images on "+
			"ext4, xfs or btrfs, or have them flattened", dir)
}
