package gossip

import (
	"reflect"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
)

// announcement is a record of ours that is to be told.
type announcement struct {
	kind    registry.Kind
	key     string
	schema  uint32
	payload []byte // nil: the thing is gone
	// came is the thing as it came, where it is gone before that was written. Both are written then: who had it made
	// knows it without our word, and is to hear that it is gone.
	came *announcement
}

type recordKey struct {
	kind registry.Kind
	key  string
}

// outbox is what this worker has announced and the announcer has not written yet: of each record the newest, and of a
// thing that has come and gone meanwhile that it came, too. Announcing waits for neither a signature nor the registry.
type outbox struct {
	mu      sync.Mutex
	said    cluster.Record // as last announced
	waiting map[recordKey]announcement
	order   []recordKey // in which they were first announced
}

func (b *outbox) putAnnouncement(a announcement) {
	k := recordKey{a.kind, a.key}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enterAnnouncement(k, a)
}

// enterAnnouncement is called with the lock.
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

// putWorker enters the worker's record, unless it says what the last one said.
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

// beginAnew empties the outbox: all is told anew, with this worker's record among it.
func (b *outbox) beginAnew(said cluster.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said, b.waiting, b.order = said, nil, nil
}

func sameButTime(a, b cluster.Record) bool {
	a.At, a.Version = b.At, b.Version
	return reflect.DeepEqual(a, b)
}
