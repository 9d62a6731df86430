package reaper

import (
	"os"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/users"
	"github.com/soukhq/souk/runtime/reaper/volumes"
)

// held are the opened volumes of a start's mounts, in the same order. Where souk is not root it is empty: a mount is
// then a link to a directory.
type held []*volumes.Volume

// openVolumes opens a start's volumes. The caller closes them.
func openVolumes(s *frame.Start) (held, error) {
	if os.Geteuid() != 0 {
		return nil, noFile(s)
	}
	all := make(held, 0, len(s.Mounts))
	for i := range s.Mounts {
		v, err := volumes.Open(s.Mounts[i].Dir)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// noFile refuses volumes that are file systems in files.
func noFile(s *frame.Start) error {
	for _, m := range s.Mounts {
		if st, err := os.Lstat(m.Dir); err == nil && st.Mode().IsRegular() {
			return fault.New(fault.Precondition, fault.CodeVolume, "volume %s is a file system of its own, which souk "+
				"can mount as root only: run souk as root", m.Volume)
		}
	}
	return nil
}

// close closes the volumes. Where a machine has them, they stay mounted.
func (h held) close() {
	for _, v := range h {
		_ = v.Close() // nothing is written by closing
	}
}

// giveVolumes makes the owners of the volumes' files right for the process of a machine. With its machine's own user it
// owns the files of the volume's root. A user of the host has the same number in the volume and is given volumes that
// no machine has had yet.
func (r *Reaper) giveVolumes(all held, s *frame.Start, o *owner) error {
	if len(all) == 0 || o == nil {
		return nil
	}
	if s.User != "" || s.As != nil {
		for _, v := range all {
			err := v.Take(func(bool) error { return v.Give(uint32(o.uid), uint32(o.gid), 0o755) }) //nolint:gosec // the host's
			if err != nil {
				return err
			}
		}
		return nil
	}
	ids := users.Numbers(o.uid)
	ns, err := r.namespaces.openNamespace(ids)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeVolume, "volumes cannot be shown to the machine's user")
	}
	defer ns.Close()
	for _, v := range all {
		shown, err := v.Show(ns, ids)
		switch {
		case err != nil:
		case shown:
			err = v.Take(func(bool) error { return v.Give(0, 0, 0o755) })
		default:
			err = v.AsItIs(o.uid, o.gid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
