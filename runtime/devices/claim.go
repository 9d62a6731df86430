package devices

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"syscall"
)

// claims are the devices that this process alone grants, among all souks of the host. Each claim is a lock on a file,
// which the kernel releases when the process ends for any reason.
type claims struct {
	dir  string // "": nothing is locked
	held map[string]*os.File
}

// elsewhere is the health of a device that another souk of the host grants.
const elsewhere = "another souk of this host grants it"

// claimDevice claims a device, and returns why this process may not grant it, "" if it may.
func (c *claims) claimDevice(id string) string {
	if c.dir == "" || c.held[id] != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return "it cannot be seen whether another souk of this host grants it: " + lastCause(err).Error()
	}
	f, err := os.OpenFile(filepath.Join(c.dir, hex.EncodeToString(sum[:8])),
		os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return "it cannot be seen whether another souk of this host grants it: " + lastCause(err).Error()
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return elsewhere
	}
	if c.held == nil {
		c.held = map[string]*os.File{}
	}
	c.held[id] = f
	return ""
}
