package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// CordonBucket holds the worker's cordon under the key "worker"; it is empty without a cordon.
const CordonBucket = "cordon"

// Bounds of a cordon.
const (
	MaxCordonText = 256                  // bytes of its owner and of its reason
	MaxCordon     = 366 * 24 * time.Hour // the longest TTL
)

// cordon is whether the worker accepts anything new. The effective cordon is in the ledger's record.
type cordon struct {
	*core
	own *cluster.Cordon // set by a command; nil: none
}

// showReason puts the reason for accepting nothing into the ledger's record: a halt takes precedence over a cordon,
// and a cordon over a full disk.
func (s *cordon) showReason() {
	c := s.own
	switch {
	case s.halt.why != "":
		c = &cluster.Cordon{Owner: HaltOwner, Reason: s.halt.why, Since: s.halt.since.UTC()}
	case c == nil && s.full.why != nil:
		c = &cluster.Cordon{Owner: cluster.DiskOwner, Reason: s.full.why.Error(), Since: s.full.since.UTC()}
	}
	if !c.Same(s.seller.Cordon()) {
		s.seller.SetCordon(c)
	}
}

func (s *cordon) restoreRecords(d Decoded) error {
	rec := d.rec
	var c cluster.Cordon
	if err := decodeRecord(rec, &c, "the cordon"); err != nil {
		return err
	}
	s.own = &c
	s.showReason()
	return nil
}

// nextStep returns when the cordon ends by itself; zero if it does not.
func (s *cordon) nextStep() time.Time {
	if s.halt.why != "" {
		return time.Time{}
	}
	if s.own != nil {
		return s.own.Until
	}
	return time.Time{}
}

// stepDue ends a cordon whose TTL is over.
func (s *cordon) stepDue() {
	if ends := s.nextStep(); !ends.IsZero() && !s.now.Before(ends) {
		s.setCordon(nil)
	}
}

func (s *cordon) setCordon(c *cluster.Cordon) {
	s.own = c
	s.showReason()
	if c != nil {
		s.putRecord(CordonBucket, "worker", c)
	} else {
		s.removeRecord(CordonBucket, "worker")
	}
	s.out.Sync = true
}

// changeCordon carries out a command. A repeated command renews the TTL, and keeps the time since when the worker is
// cordoned.
func (s *cordon) changeCordon(c CordonCommand) error {
	if err := s.halt.refuseIfHalted(); err != nil {
		return err
	}
	old := s.own
	switch {
	case c.End && old == nil:
		return nil
	case c.End:
		s.setCordon(nil)
		return nil
	case c.Owner == "" || c.Reason == "":
		return fault.New(fault.Invalid, codeCordon,
			"a cordon needs an owner and a reason, so that others know whom to ask and what for")
	case len(c.Owner) > MaxCordonText || len(c.Reason) > MaxCordonText:
		return fault.New(fault.Invalid, codeCordon,
			"the owner and the reason of a cordon have at most %d bytes each", MaxCordonText)
	case c.EndTasks && !c.Drain:
		return fault.New(fault.Invalid, codeCordon, "end_tasks is for a drain, because a cordon stops nothing; ask "+
			"for a drain, or leave end_tasks out")
	case c.TTL < 0 || c.TTL > MaxCordon:
		return fault.New(fault.Invalid, codeCordon, "a cordon lasts up to %v; got %v", MaxCordon, c.TTL)
	}
	next := &cluster.Cordon{Owner: c.Owner, Reason: c.Reason, Since: s.now.UTC(), Drain: c.Drain}
	if old != nil {
		next.Since = old.Since
	}
	if c.TTL > 0 {
		next.Until = s.now.Add(c.TTL).UTC()
	}
	s.setCordon(next)
	return nil
}

// Cordon carries out a command; the resulting record is durable once the Out is. Out.Evict lists the tasks to end.
func (s *Supervisor) Cordon(now time.Time, c CordonCommand) (Out, error) {
	s.openOut(now)
	err := s.cordon.changeCordon(c)
	if err == nil && c.EndTasks {
		s.tasks.evictAllTasks(c.Owner + ": " + c.Reason)
	}
	return s.closeOut(), err
}
