package registry

import "github.com/soukhq/souk/cluster"

// Update is the newest records of all that an owner changed in (From, To] of one incarnation.
type Update struct {
	Owner       cluster.WorkerID
	Incarnation uint64
	From, To    uint64   // complete for versions above From, up to To
	Full        uint64   // the version at which the incarnation's first announcement was complete
	Compacted   uint64   // deletions up to here may be missing
	Upto        uint64   // the newest version that the sender has heard of: if To is less, there is more to ask for
	Reset       bool     // from the owner only: drop all its records and begin at 0
	Records     []Record // in the order of Version
	Head        Head
}

// Check refuses a malformed update.
func (r Update) Check() error {
	if err := checkName("an update's owner", string(r.Owner), MaxName); err != nil {
		return err
	}
	switch {
	case r.Incarnation < 1 || r.Incarnation > MaxIncarnation:
		return invalidRecord(
			"an update of %s has incarnation %d; 1 to %d are allowed", r.Owner, r.Incarnation, uint64(MaxIncarnation))
	case r.From > r.To || r.To > r.Upto || r.Upto > MaxVersion || r.Full > MaxVersion || r.Compacted > MaxVersion:
		return invalidRecord(
			"an update of %s from %d to %d of %d, full at %d, compacted %d, contradicts itself",
			r.Owner, r.From, r.To, r.Upto, r.Full, r.Compacted)
	case len(r.Head.Sig) > MaxSig || r.Head.Version > MaxVersion:
		return invalidRecord(
			"the head of an update of %s is at version %d, with a signature of %d bytes; %d and %d are the most",
			r.Owner, r.Head.Version, len(r.Head.Sig), uint64(MaxVersion), MaxSig)
	case len(r.Records) > MaxRecords:
		return invalidRecord("an update of %s has %d records; %d is the most", r.Owner, len(r.Records), MaxRecords)
	}
	last := r.From
	for _, rec := range r.Records {
		if err := rec.Check(); err != nil {
			return err
		}
		if rec.Owner != r.Owner || rec.Incarnation != r.Incarnation || rec.Version <= last || rec.Version > r.To {
			return invalidRecord(
				"an update of %s has a record that is not of it: version (%d, %d) of %s",
				r.Owner, rec.Incarnation, rec.Version, rec.Owner)
		}
		last = rec.Version
	}
	return nil
}

// Span is a range (From, To] of versions that is known beyond a gap.
type Span struct{ From, To uint64 }

// coverSpan adds (from, to] to the known versions, and returns the new end of those known without a gap.
func coverSpan(known uint64, beyond []Span, from, to uint64) (uint64, []Span) {
	if from > known {
		if to > from {
			beyond = insertSpan(beyond, Span{from, to})
		}
		return known, beyond
	}
	known = max(known, to)
	for len(beyond) > 0 && beyond[0].From <= known {
		known = max(known, beyond[0].To)
		beyond = beyond[1:]
	}
	return known, beyond
}

// insertSpan adds a span to others, in order and merged. It drops the highest if there are too many.
func insertSpan(spans []Span, s Span) []Span {
	out := make([]Span, 0, len(spans)+1)
	placed := false
	for _, o := range spans {
		switch {
		case o.To < s.From:
			out = append(out, o)
		case s.To < o.From:
			if !placed {
				out, placed = append(out, s), true
			}
			out = append(out, o)
		default:
			s = Span{min(s.From, o.From), max(s.To, o.To)}
		}
	}
	if !placed {
		out = append(out, s)
	}
	return out[:min(len(out), maxSpans)]
}

// lackingIn returns the parts of a span that others, which are in order, do not cover.
func (s Span) lackingIn(others []Span) (out []Span) {
	for _, o := range others {
		if o.To <= s.From || o.From >= s.To {
			continue
		}
		if o.From > s.From {
			out = append(out, Span{s.From, o.From})
		}
		s.From = o.To
	}
	if s.From < s.To {
		out = append(out, s)
	}
	return out
}
