package gossip

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// The files of the directory.
const (
	MembersFile = "members.json"
	ObjectsFile = "objects"
)

// saved is the content of members.json: the addresses of the other members, and the last incarnation that we used.
type saved struct {
	Incarnation uint64 `json:"incarnation"`
	addresses
}

// addresses are the last known addresses of members, by id.
type addresses struct {
	Gossip map[cluster.WorkerID]string `json:"members"`
	Calls  map[cluster.WorkerID]string `json:"calls,omitempty"` // API addresses; see cluster.Member.API
}

func newAddresses() addresses {
	return addresses{Gossip: map[cluster.WorkerID]string{}, Calls: map[cluster.WorkerID]string{}}
}

func (a addresses) clone() addresses { return addresses{maps.Clone(a.Gossip), maps.Clone(a.Calls)} }

func (a addresses) set(id cluster.WorkerID, gossip, call string) {
	a.Gossip[id] = gossip
	if call != "" {
		a.Calls[id] = call
	}
}

// disk keeps the files members.json and objects. The file objects is a sequence of frames (length, checksum, object); a
// newer version of an object stands further back. Without a directory it keeps nothing.
type disk struct {
	saved   saved // as read at start
	dir     string
	file    *os.File
	size    int64
	live    int64             // bytes of the file just after it was last rewritten
	objects []registry.Object // as read at start
}

const maxFrame = registry.MaxPayload + 4096

func openDisk(dir string) (*disk, error) {
	d := &disk{dir: dir}
	if dir == "" {
		return d, nil
	}
	if err := d.openFiles(); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeGossipDir,
			"the directory %s cannot be used for the members and objects of the cluster", dir)
	}
	return d, nil
}

func (d *disk) openFiles() error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(d.dir, MembersFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := json.Unmarshal(raw, &d.saved); err != nil {
		d.saved = saved{} // other members, once found, supply the addresses and our incarnation again
	}
	if raw, err = os.ReadFile(filepath.Join(d.dir, ObjectsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	latest := map[string]int{}
	for len(raw) >= 8 {
		n := binary.BigEndian.Uint32(raw)
		if !wholeFrame(raw) {
			if hasWholeFrame(raw[1:]) {
				return fault.New(fault.Internal, codeObjectsDamaged,
					"the file %s is damaged in its middle and was left as it is: restore it from a backup, or give up "+
						"what it holds and the other members do not know: souk agent without %s",
					filepath.Join(d.dir, ObjectsFile), filepath.Join(d.dir, ObjectsFile))
			}
			break // cut off by a crash: nothing after it was acknowledged
		}
		if o, err := registry.DecodeObject(raw[8 : 8+n]); err == nil {
			key := string(o.Kind) + "/" + o.Key
			if i, twice := latest[key]; twice {
				if o.Stamp.Compare(d.objects[i].Stamp) > 0 {
					d.objects[i] = o
				}
			} else {
				latest[key] = len(d.objects)
				d.objects = append(d.objects, o)
			}
		}
		raw = raw[8+n:]
	}
	return d.rewriteObjects(d.objects)
}

// wholeFrame reports whether b begins with a completely written frame. An empty frame does not count.
func wholeFrame(b []byte) bool {
	n := binary.BigEndian.Uint32(b)
	return n > 0 && n <= maxFrame && int(n) <= len(b)-8 &&
		crc32.ChecksumIEEE(b[8:8+n]) == binary.BigEndian.Uint32(b[4:])
}

// hasWholeFrame reports whether a completely written frame begins anywhere in b.
func hasWholeFrame(b []byte) bool {
	for ; len(b) > 8; b = b[1:] {
		if wholeFrame(b) {
			return true
		}
	}
	return false
}

// rewriteObjects replaces the file of objects by one that holds only objs.
func (d *disk) rewriteObjects(objs []registry.Object) error {
	if d.dir == "" {
		return nil
	}
	var raw []byte
	for _, o := range objs {
		raw = appendFrame(raw, o)
	}
	path := filepath.Join(d.dir, ObjectsFile)
	if err := replaceFile(path, raw); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if d.file != nil {
		err = d.file.Close()
	}
	d.file, d.size, d.live = f, int64(len(raw)), int64(len(raw))
	return err
}

func appendFrame(b []byte, o registry.Object) []byte {
	x := registry.EncodeObject(o)
	b = binary.BigEndian.AppendUint32(b, uint32(len(x)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(x))
	return append(b, x...)
}

// appendObjects appends objects to the file, and syncs it if sync is set.
func (d *disk) appendObjects(sync bool, objs ...registry.Object) error {
	if d.file == nil || len(objs) == 0 {
		return nil
	}
	var frames []byte
	for _, o := range objs {
		frames = appendFrame(frames, o)
	}
	_, err := d.file.Write(frames)
	if err == nil && sync {
		err = d.file.Sync()
	}
	if err != nil {
		_ = d.file.Truncate(d.size) // half a frame would hide later frames
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk,
			"%s %s was not saved: the disk cannot be written", objs[0].Kind, objs[0].Key)
	}
	d.size += int64(len(frames))
	return nil
}

// needsRewrite reports whether most of the file is outdated versions.
func (d *disk) needsRewrite() bool { return d.file != nil && d.size > 2*d.live+(1<<20) }

// writeMembers replaces members.json.
func (d *disk) writeMembers(s saved) error {
	if d.dir == "" {
		return nil
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = replaceFile(filepath.Join(d.dir, MembersFile), raw)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "the members of the cluster cannot be saved")
	}
	return nil
}

func (d *disk) close() error {
	if d.file == nil {
		return nil
	}
	err := errors.Join(d.file.Sync(), d.file.Close())
	d.file = nil
	return err
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, raw []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
