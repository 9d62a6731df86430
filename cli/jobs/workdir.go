package jobs

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// sharedTypes are the file systems that hosts share, by the numbers of statfs(2) and those of the file systems'
// sources. FUSE is not among them: most of what it mounts is one user's own.
var sharedTypes = map[int64]string{ //nolint:gochecknoglobals // a constant
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "SMB",
	unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda",
	unix.OCFS2_SUPER_MAGIC: "OCFS2", 0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
}

// sharedDirHere returns the directory of this command if it is on a file system that hosts share; "": it is not.
func sharedDirHere() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || sharedTypes[int64(st.Type)] == "" { //nolint:unconvert // not an int64 everywhere
		return ""
	}
	return dir
}

// dirOf returns the absolute path of the directory that --chdir names: a relative one is below that of this command.
func dirOf(named string) (string, error) {
	if named == "" || filepath.IsAbs(named) {
		return named, nil
	}
	dir, err := filepath.Abs(named)
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, fault.CodePath, "the directory %s cannot be found from here", named)
	}
	return dir, nil
}
