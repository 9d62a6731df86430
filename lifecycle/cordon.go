package lifecycle

import (
	"encoding/json"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
)

// CordonBucket holds the worker's cordon under the key "worker"; nothing is there while it has none.
const CordonBucket = "cordon"

// Bounds of a cordon.
const (
	MaxCordonText = 256                  // bytes of its owner and of its reason
	MaxCordon     = 366 * 24 * time.Hour // that one with an end may last
)

// CordonCommand makes a worker take nothing new, or with End makes it take things again. It says nothing of the machines
// that the worker has: they stay, restart where they are, and may be stopped and started.
type CordonCommand struct {
	Owner  string        `json:"owner"`
	Reason string        `json:"reason"`
	TTL    time.Duration `json:"ttl,omitempty"`   // it ends by itself then; 0: somebody must end it
	Drain  bool          `json:"drain,omitempty"` // the worker is being emptied
	End    bool          `json:"end,omitempty"`
}

// Cordon carries out a command; the record it leads to is durable when the Out is. The same again renews the time, and keeps
// since when the worker is cordoned.
func (s *Supervisor) Cordon(now time.Time, c CordonCommand) (Out, error) {
	s.open(now)
	old := s.seller.Record(now).Cordon
	switch {
	case c.End && old == nil:
		return s.close(), nil
	case c.End:
		s.putCordon(nil)
	case c.Owner == "" || c.Reason == "":
		return s.close(), fault.New(fault.Invalid, "cordon", "a cordon needs an owner and a reason, so that others know whom to ask and what for")
	case len(c.Owner) > MaxCordonText || len(c.Reason) > MaxCordonText:
		return s.close(), fault.New(fault.Invalid, "cordon", "the owner and the reason of a cordon have at most %d bytes each", MaxCordonText)
	case c.TTL < 0 || c.TTL > MaxCordon:
		return s.close(), fault.New(fault.Invalid, "cordon", "a cordon lasts up to %v; got %v", MaxCordon, c.TTL)
	default:
		next := &cluster.Cordon{Owner: c.Owner, Reason: c.Reason, Since: now.UTC(), Drain: c.Drain}
		if old != nil {
			next.Since = old.Since
		}
		if c.TTL > 0 {
			next.Until = now.Add(c.TTL).UTC()
		}
		s.putCordon(next)
	}
	return s.close(), nil
}

func (s *Supervisor) putCordon(c *cluster.Cordon) {
	s.seller.SetCordon(c)
	rec := fsm.Record{Bucket: CordonBucket, Key: "worker"}
	if c != nil {
		b, err := json.Marshal(c)
		if err != nil {
			panic("lifecycle: a cordon does not encode: " + err.Error()) // plain data: cannot happen
		}
		rec.Value = b
	}
	s.out.Records = append(s.out.Records, rec)
	s.out.Sync = true
}

// cordonEnds gives when the cordon ends by itself; zero when it does not.
func (s *Supervisor) cordonEnds() time.Time {
	if c := s.seller.Cordon(); c != nil {
		return c.Until
	}
	return time.Time{}
}

// endCordon ends a cordon whose time is over.
func (s *Supervisor) endCordon() {
	if ends := s.cordonEnds(); !ends.IsZero() && !s.now.Before(ends) {
		s.putCordon(nil)
	}
}

func (s *Supervisor) restoreCordon(rec fsm.Record) error {
	var c cluster.Cordon
	if err := json.Unmarshal(rec.Value, &c); err != nil {
		return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal's record of the cordon does not read; restore the journal from a backup")
	}
	s.seller.SetCordon(&c)
	return nil
}
