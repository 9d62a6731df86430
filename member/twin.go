package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/store/journal"
)

// twinFile keeps that another of this member's id was found: until somebody says which of them lives.
const twinFile = "twin.json"

// contactTime bounds how long a worker waits to hear another member before it begins what its journal says, and
// examineTime how long it then asks who is at the addresses that it heard of. Where anybody is there both take
// milliseconds. They are that long for hosts that are short of CPU; a worker that is cut off loses little by them.
const (
	contactTime = 10 * time.Second
	examineTime = 5 * time.Second
)

// Twin is another process with this member's id and key, which was alive at the same time: the disk of one is a copy
// of the other's.
type Twin struct {
	At    string    `json:"at"` // where it was
	Since time.Time `json:"since"`
}

// twins finds out whether another of the member's id is alive. That others remember it at another address shows
// nothing, for it may have moved. That somebody answers there, with the member's own key and as another process, does;
// and so does such a one that calls here. Who has the key of gossip alone can neither.
type twins struct {
	m     *Member
	found atomic.Pointer[Twin] // nil: none
	wake  chan struct{}        // somebody was claimed to be at another address
	// others may remember the member at an address where nobody is it: a twin that died, or is not to live
	elsewhere chan struct{}

	mu       sync.Mutex
	claimed  map[string]bool // addresses of wires, not looked at yet
	changed  chan struct{}   // closed and replaced when found changes
	examines sync.Mutex      // held while addresses are looked at
}

// maxClaimed bounds the addresses that wait: who has the key of gossip may claim any number.
const maxClaimed = 16

func openTwins(m *Member) *twins {
	t := &twins{m: m, wake: make(chan struct{}, 1), elsewhere: make(chan struct{}, 1), claimed: map[string]bool{},
		changed: make(chan struct{})}
	raw, err := os.ReadFile(t.twinsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return t
	}
	x := Twin{At: "an address that is not known any more"}
	_ = json.Unmarshal(raw, &x) // that the file is there says what counts
	t.found.Store(&x)
	return t
}

func (t *twins) twinsFile() string { return filepath.Join(t.m.o.Dir, twinFile) }

// noteClaim enters that somebody has the member's name at another address, as gossip says.
func (t *twins) noteClaim(_, api string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if api == "" || api == t.m.api || len(t.claimed) >= maxClaimed {
		return
	}
	t.claimed[api] = true
	wakeLoop(t.wake)
}

// wakeLoop wakes a loop; one that was woken already looks again.
func wakeLoop(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// examineClaims looks at what is claimed until ctx ends.
func (t *twins) examineClaims(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			t.examineClaimed(ctx)
		}
		select { // a claim is repeated as long as it stands
		case <-ctx.Done():
			return
		case <-time.After(t.m.o.Knobs.Probe):
		}
	}
}

// tellWhereabouts tells others where this member is, when they may remember it where nobody is it any more, until ctx
// ends. They believe it once they have lost who was there, which takes them some seconds, and by themselves they would
// ask only with one of memberlist's exchanges, half a minute later.
func (t *twins) tellWhereabouts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.elsewhere:
		}
		for pause := t.m.o.Knobs.Probe; pause < t.m.o.Knobs.PushPull && !t.isDisplaced(); pause *= 2 {
			if err := t.m.cluster.Exchange(ctx); err != nil && ctx.Err() == nil {
				t.m.o.Log.Debug("another member could not be told where this one is", "err", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// examineClaimed asks at the addresses that were claimed who is there. It returns when all that were claimed before have
// been asked.
func (t *twins) examineClaimed(ctx context.Context) {
	t.examines.Lock()
	defer t.examines.Unlock()
	t.mu.Lock()
	claimed := t.claimed
	t.claimed = map[string]bool{}
	t.mu.Unlock()
	var all sync.WaitGroup
	for api := range claimed {
		all.Go(func() { t.askTwin(ctx, api) })
	}
	all.Wait()
}

// askTwin asks at an address who is there. What answers is to have the member's own id, by a certificate that is not of
// before its removal.
func (t *twins) askTwin(ctx context.Context, api string) {
	who, err := t.m.client.WhoIs(ctx, api, string(t.m.ID()))
	switch {
	case err != nil:
		t.m.o.Log.Warn("others remember a member of this id at another address, where nobody answers as it",
			"address", api, "err", err)
		wakeLoop(t.elsewhere)
	case who.Boot == t.m.client.Boot(): // itself
	default:
		t.noteTwin(api)
	}
}

// noteTwin enters that another of the member's id is alive.
func (t *twins) noteTwin(addr string) {
	x := &Twin{At: addr, Since: time.Now().UTC()}
	if !t.found.CompareAndSwap(nil, x) {
		return
	}
	t.m.cluster.Yield(true)
	err := journal.WriteWhole(t.twinsFile(), mustJSON(x), 0o600)
	t.m.o.Log.Error("another of this member's id is alive; nothing is granted or started here any more", "at", addr,
		"err", err)
	t.raiseAlarm()
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data
	}
	return raw
}

func (t *twins) raiseAlarm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *twins) pastAlarm() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// whyTwin says that another was found; "" where none was.
func (t *twins) whyTwin() string {
	x := t.found.Load()
	if x == nil {
		return ""
	}
	return fmt.Sprintf("another worker with the id %s and its key was alive at %s: the disk of one is a copy of the "+
		"other's; neither grants or starts anything until somebody says, on the host of the one that is to live, "+
		"\"souk agent lives\"", t.m.ID(), x.At)
}

// MayBegin waits until it is known whether another of the member's id is alive, and returns why the worker may begin
// nothing; "": it may. It waits for the first word of another member, and no longer than contactTime: a worker that is
// alone, or cut off, begins. One whose lives run here was no copy when they began, and does not wait.
func (m *Member) MayBegin(ctx context.Context, goesOn bool) string {
	t := m.twins
	if why := t.whyTwin(); why != "" || goesOn || m.cluster.Alone() {
		return why
	}
	silence := time.NewTimer(contactTime)
	defer silence.Stop()
	select {
	case <-m.cluster.Contact():
		asking, cancel := context.WithTimeout(ctx, examineTime)
		defer cancel()
		t.examineClaimed(asking)
	case <-t.pastAlarm():
	case <-silence.C:
	case <-ctx.Done():
	}
	return t.whyTwin()
}

// FollowTwins calls halt whenever it has changed why the worker may begin nothing, with what returns why; "": it may.
// It ends with ctx.
func (m *Member) FollowTwins(ctx context.Context, halt func(ctx context.Context, why func() string) error) error {
	for {
		past := m.twins.pastAlarm()
		if err := halt(ctx, m.twins.whyTwin); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-past:
		}
	}
}

// Lives has this member be the one that lives, of all that have its id: it gets a new certificate, and those of before
// are refused from now on. The other hears that its id is gone, and must join anew with another.
func (m *Member) Lives(ctx context.Context, by cluster.Removal) error {
	t := m.twins
	if t.found.Load() == nil {
		return fault.New(fault.Precondition, codeNoTwin, "no other member of the id %s has been found alive", m.ID())
	}
	old := m.identity.Begins()
	for !m.identity.Begins().After(old) { // certificates begin at whole seconds
		if err := upkeepOf(m).Renew(ctx); err != nil {
			return fault.Wrap(err, fault.KindOf(err), codeRenew,
				"an issuer is needed to tell this member from the other one of its id: see that one can be reached")
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Timeout, fault.CodeDeadline,
				"there was no time to get another certificate; ask again")
		case <-time.After(100 * time.Millisecond):
		}
	}
	begins := m.identity.Begins().Add(clockSlack)
	m.cluster.Yield(false)
	if err := m.cluster.BeginAnew(incarnationAt(begins)); err != nil {
		return err
	}
	by.Member, by.At, by.Rejoined = m.ID(), begins.Add(-time.Millisecond).UTC(), begins.UTC()
	if err := (remover{m}).writeRemoval(by); err != nil {
		return err
	}
	if err := os.Remove(t.twinsFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "it cannot be written down that this member lives")
	}
	m.o.Log.Warn("this member was said to be the one that lives of those with its id", "by", by.By, "reason", by.Reason)
	t.found.Store(nil)
	t.raiseAlarm()
	wakeLoop(t.elsewhere)
	return nil
}

func upkeepOf(m *Member) *wire.Upkeep {
	return &wire.Upkeep{Client: m.client, Issuers: m.issuers.all, Local: m.certSigner(),
		Renewed: doorkeeper{m}.retellAll}
}

// retellAll tells all that this member has anew, with its new certificate: so none of its records has a signature of one
// that has ended, and who has the key of that can say nothing more.
func (m doorkeeper) retellAll() {
	if !m.begun.Load() || m.twins.found.Load() != nil { // twins do not outbid each other
		return
	}
	if err := m.cluster.BeginAnew(m.firstIncarnation()); err != nil {
		m.o.Log.Warn("what this member has could not be told anew with its new certificate", "err", err)
	}
}

// isDisplaced reports whether the member's id lives on elsewhere: another was met, and the cluster has been told to
// refuse the certificate of this one, and to let in a younger one. The word alone is not enough: whoever has the key of
// gossip can write it.
func (t *twins) isDisplaced() bool {
	if t.found.Load() == nil {
		return false
	}
	r, removed := t.m.removalOf(string(t.m.ID()))
	return removed && !r.Rejoined.IsZero() && t.m.isDenied(string(t.m.ID()), t.m.identity.Begins())
}

// runGossip has the member take part in gossip until ctx ends, or its id lives on elsewhere: then it says goodbye, so
// that the others find the one that lives.
func (t *twins) runGossip(ctx context.Context) error {
	own, end := context.WithCancel(context.WithoutCancel(ctx)) // no goodbye can be said behind the end
	defer end()
	done := make(chan error, 1)
	go func() { done <- t.m.cluster.Run(own) }()
	for {
		moved := t.m.cluster.Moved()
		if (remover{t.m}).readRemovals(); t.isDisplaced() {
			break
		}
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			end()
			return <-done
		case <-moved:
		}
		select { // much moves that is no removal
		case <-time.After(refreshEvery):
		case <-ctx.Done():
		}
	}
	t.m.o.Log.Error("this member's id lives on elsewhere; it leaves the gossip")
	bye, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := t.m.cluster.Leave(bye); err != nil {
		t.m.o.Log.Warn("the goodbye may not have reached anybody", "err", err)
	}
	end()
	if err := <-done; err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
