package member

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
)

// KindDoor is the kind of objects that say where a member serves the API for other hosts. Their keys are the members'
// ids.
const KindDoor = registry.Kind("door")

const schemaDoor = 1

// Bounds of a door's fields that other members accept.
const (
	maxDoorAddr = 300
	maxDoorRoot = 8 << 10
)

// doorRow is a door as stored in its object.
type doorRow struct {
	Addr string `json:"addr"`
	Root string `json:"root,omitempty"` // PEM
}

// isGood reports whether a door may be given to clients, which send tokens to it.
func (d doorRow) isGood() bool {
	return strings.HasPrefix(d.Addr, "https://") && len(d.Addr) <= maxDoorAddr && len(d.Root) <= maxDoorRoot
}

// doorList is the doors of all members at one moment.
type doorList struct {
	doors []cluster.Door
	mark  string
}

// TellDoor announces to all members where this one serves the API for other hosts, with the root of its certificate if
// that is souk's own. An address without TLS is for this host only, and is not announced.
func (m *Member) TellDoor(addr, root string) error {
	objects := m.cluster.Objects()
	row := doorRow{addr, root}
	if !row.isGood() {
		if _, told := objects.Get(KindDoor, string(m.ID())); told {
			return objects.Delete(KindDoor, string(m.ID()))
		}
		return nil
	}
	raw, err := json.Marshal(row)
	if err == nil { // even if unchanged: the old one may be signed with an invalid certificate
		_, err = objects.Put(KindDoor, string(m.ID()), schemaDoor, raw)
	}
	return err
}

// Doors lists where members serve the API for other hosts, by their ids, and a mark of that list.
func (m *Member) Doors() ([]cluster.Door, string) {
	if list := m.doors.Load(); list != nil {
		return list.doors, list.mark
	}
	return nil, ""
}

// readDoors rereads the list of doors from the registry.
func (m *Member) readDoors() {
	list := &doorList{}
	hash := sha256.New()
	for _, o := range m.cluster.Objects().List(KindDoor) {
		var row doorRow
		id := cluster.WorkerID(o.Key)
		if json.Unmarshal(o.Payload, &row) != nil || !row.isGood() || m.removedFor(id) {
			continue
		}
		list.doors = append(list.doors, cluster.Door{Member: id, Addr: row.Addr, Root: row.Root})
		hash.Write([]byte(o.Key + "\x00" + row.Addr + "\x00" + row.Root + "\x00"))
	}
	if len(list.doors) > 0 {
		list.mark = base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:9])
	}
	m.doors.Store(list)
}
