package gossip

import (
	"reflect"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
)

// announcement is a record of ours to publish.
type announcement struct {
	kind    registry.Kind
	key     string
	schema  uint32
	payload []byte // nil: the record is deleted
	// came is the creation of the thing, if it was deleted before the creation was written. Both are then written: the
	// client that created it knows of it without our announcement, and must learn of the deletion.
	came *announcement
}

type recordKey struct {
	kind registry.Kind
	key  string
}

// outbox holds the announcements that the announcer has not written yet: the newest of each record, and the creation of
// a thing that was created and deleted meanwhile. Announcing waits for neither a signature nor the registry.
type outbox struct {
	mu      sync.Mutex
	said    cluster.Record // the worker's record as last announced
	waiting map[recordKey]announcement
	order   []recordKey // in order of first announcement
}

func (b *outbox) putAnnouncement(a announcement) {
	k := recordKey{a.kind, a.key}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enterAnnouncement(k, a)
}

// enterAnnouncement replaces a waiting announcement of the record by a. The caller holds the lock.
func (b *outbox) enterAnnouncement(k recordKey, a announcement) {
	old, waits := b.waiting[k]
	switch {
	case !waits:
		b.order = append(b.order, k)
	case a.payload == nil && old.payload == nil:
		a.came = old.came
	case a.payload == nil:
		a.came = &old
	}
	if b.waiting == nil {
		b.waiting = map[recordKey]announcement{}
	}
	b.waiting[k] = a
}

// putWorker enters the worker's record, unless only its time and version differ from the last one.
func (b *outbox) putWorker(w cluster.Record, payload []byte) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sameButTime(b.said, w) {
		return false
	}
	b.said = w
	b.enterAnnouncement(recordKey{registry.Worker, string(w.Worker)},
		announcement{kind: registry.Worker, key: string(w.Worker), schema: schemaWorker, payload: payload})
	return true
}

// takeAll empties the outbox.
func (b *outbox) takeAll() (out []announcement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.order {
		a := b.waiting[k]
		if a.came != nil {
			out = append(out, *a.came)
		}
		out = append(out, a)
	}
	b.waiting, b.order = nil, nil
	return out
}

// beginAnew empties the outbox, because Begin announces everything; said is this worker's record in it.
func (b *outbox) beginAnew(said cluster.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said, b.waiting, b.order = said, nil, nil
}

func sameButTime(a, b cluster.Record) bool {
	a.At, a.Version = b.At, b.Version
	return reflect.DeepEqual(a, b)
}
