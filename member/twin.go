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

// twinFile records that another process with this member's id was found, until an operator decides which of them lives.
const twinFile = "twin.json"

// contactTime bounds how long a worker waits to hear another member before it starts the machines of its journal, and
// examineTime how long it then asks for the identity at claimed addresses. If others are reachable both take
// milliseconds. They are this long for hosts short of CPU; a cut-off worker loses little.
const (
	contactTime = 10 * time.Second
	examineTime = 5 * time.Second
)

// Twin is another process with this member's id and key, which was alive at the same time: the disk of one is a copy
// of the other's.
type Twin struct {
	At    string    `json:"at"` // its address
	Since time.Time `json:"since"`
}

// twins finds out whether another of the member's id is alive. That others remember the member at another address
// proves nothing, since it may have moved. A process that answers there with the member's own key, or calls here with
// it, proves a twin. Holding only the gossip key is not enough to do either.
type twins struct {
	m     *Member
	found atomic.Pointer[Twin] // nil: no twin
	wake  chan struct{}        // signals a claim of another address
	// signals that others may remember a wrong address: of a twin that died or must not live
	elsewhere chan struct{}

	mu       sync.Mutex
	claimed  map[string]bool // wire addresses, not examined yet
	changed  chan struct{}   // closed and replaced when found changes
	examines sync.Mutex      // held while addresses are examined
}

// maxClaimed bounds the waiting addresses: any holder of the gossip key may claim any number.
const maxClaimed = 16

func openTwins(m *Member) *twins {
	t := &twins{m: m, wake: make(chan struct{}, 1), elsewhere: make(chan struct{}, 1), claimed: map[string]bool{},
		changed: make(chan struct{})}
	raw, err := os.ReadFile(t.twinsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return t
	}
	x := Twin{At: "an address that is not known any more"}
	_ = json.Unmarshal(raw, &x) // the file's existence is enough
	t.found.Store(&x)
	return t
}

func (t *twins) twinsFile() string { return filepath.Join(t.m.o.Dir, twinFile) }

// noteClaim records a gossip message that has the member's name at another address.
func (t *twins) noteClaim(_, api string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if api == "" || api == t.m.api || len(t.claimed) >= maxClaimed {
		return
	}
	t.claimed[api] = true
	wakeLoop(t.wake)
}

// wakeLoop wakes a loop, unless a wake-up is pending.
func wakeLoop(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// examineClaims examines claimed addresses until ctx ends.
func (t *twins) examineClaims(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			t.examineClaimed(ctx)
		}
		select { // a standing claim comes again
		case <-ctx.Done():
			return
		case <-time.After(t.m.o.Knobs.Probe):
		}
	}
}

// tellWhereabouts announces this member's address when others may remember a wrong one, until ctx ends. They accept it
// once they have lost the process there, after some seconds; without this they would learn it only with one of
// memberlist's exchanges, half a minute later.
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

// examineClaimed asks for the identity at each claimed address. It returns when all addresses claimed before the call
// were asked.
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

// askTwin asks for the identity at an address. A twin has this member's id, with a certificate that its removal does
// not reject.
func (t *twins) askTwin(ctx context.Context, api string) {
	who, err := t.m.client.WhoIs(ctx, api, string(t.m.ID()))
	switch {
	case err != nil:
		t.m.o.Log.Warn("others remember a member of this id at another address, where nobody answers as it",
			"address", api, "err", err)
		wakeLoop(t.elsewhere)
	case who.Boot == t.m.client.Boot(): // this process itself
	default:
		t.noteTwin(api)
	}
}

// noteTwin records that another process with the member's id is alive.
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
		panic(err) // plain data always encodes
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

// whyTwin returns a sentence on the twin that was found; "": none.
func (t *twins) whyTwin() string {
	x := t.found.Load()
	if x == nil {
		return ""
	}
	return fmt.Sprintf("another worker with the id %s and its key was alive at %s: the disk of one is a copy of the "+
		"other's; neither grants or starts anything until somebody says, on the host of the one that is to live, "+
		"\"souk agent lives\"", t.m.ID(), x.At)
}

// MayBegin waits until it is known whether a twin is alive, and returns why the worker may start nothing; "": it may.
// It waits for the first message of another member, at most contactTime: a worker that is alone or cut off starts. With
// goesOn, machines of the worker still run here, so its disk is no copy, and it does not wait.
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

// FollowTwins calls halt whenever the reason why the worker may start nothing has changed; the argument why returns
// that reason, "": it may start. It ends with ctx.
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

// Lives makes this member the only valid one of all copies with its id: it gets a new certificate, and all older ones
// are rejected from now on. The other copies learn this, and must join again with another id.
func (m *Member) Lives(ctx context.Context, by cluster.Removal) error {
	t := m.twins
	if t.found.Load() == nil {
		return fault.New(fault.Precondition, codeNoTwin, "no other live member with the id %s has been found", m.ID())
	}
	old := m.identity.Begins()
	for !m.identity.Begins().After(old) { // certificates begin at whole seconds
		if err := upkeepOf(m).Renew(ctx); err != nil {
			return fault.Wrap(err, fault.KindOf(err), codeRenew,
				"this member needs a new certificate, to differ from the other member with its id, and no issuer "+
					"gave one: see that an issuer can be reached")
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Timeout, fault.CodeDeadline,
				"the time was over before this member had a new certificate; ask again")
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
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "the file with the other members of this id "+
			"cannot be removed")
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

// retellAll sends all records of this member again, signed with its new certificate: so none has the signature of an
// expired one, and its key is of no more use.
func (m doorkeeper) retellAll() {
	if !m.begun.Load() || m.twins.found.Load() != nil { // twins must not outbid each other
		return
	}
	if err := m.cluster.BeginAnew(m.firstIncarnation()); err != nil {
		m.o.Log.Warn("what this member has could not be told anew with its new certificate", "err", err)
	}
}

// isDisplaced reports whether another copy of this member was chosen to live: a twin was met, and the cluster rejects
// this member's certificate in favour of a younger one. The removal alone is not enough: any holder of the gossip key
// could write it.
func (t *twins) isDisplaced() bool {
	if t.found.Load() == nil {
		return false
	}
	r, removed := t.m.removalOf(string(t.m.ID()))
	return removed && !r.Rejoined.IsZero() && t.m.isDenied(string(t.m.ID()), t.m.identity.Begins())
}

// runGossip runs gossip until ctx ends or the member is displaced: then it announces its leaving, so that the others
// find the living copy.
func (t *twins) runGossip(ctx context.Context) error {
	own, end := context.WithCancel(context.WithoutCancel(ctx)) // a leaving must be announced before gossip ends
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
		select { // most changes are no removals
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
