package accounts

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bounds of a ledger.
const (
	KeptDays  = 400 // days for which entries are kept
	MaxOwners = 64  // entries of one day; those of further owners are added up under Others
)

// Others is the owner of the entry that has the sums of those for whom a day has no room.
const Others = "others"

// Ledger has the sums of each owner and day. Its owner writes what Changes returns to its journal. It is not safe for
// concurrent use.
type Ledger struct {
	entries map[Key]*Sums
	owners  map[Day]int // entries of the day
	changed map[Key]bool
	pruned  Day // entries before this day were removed
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{entries: map[Key]*Sums{}, owners: map[Day]int{}, changed: map[Key]bool{}}
}

// Add adds sums to an entry.
func (l *Ledger) Add(k Key, s *Sums) {
	if s.IsZero() {
		return
	}
	if l.entries[k] == nil && l.owners[k.Day] >= MaxOwners {
		k = Key{Day: k.Day, Owner: Others}
	}
	l.enter(k).Add(s, 1)
	l.changed[k] = true
}

func (l *Ledger) enter(k Key) *Sums {
	s := l.entries[k]
	if s == nil {
		s = new(Sums)
		l.entries[k] = s
		l.owners[k.Day]++
	}
	return s
}

// Restore takes back an entry of the journal.
func (l *Ledger) Restore(e *Entry) { *l.enter(e.Key) = e.Sums }

// Prune removes the entries of days that are more than KeptDays ago, or lie as far ahead: a clock was wrong.
func (l *Ledger) Prune(now time.Time) {
	today := DayOf(now)
	if l.pruned == today {
		return
	}
	l.pruned = today
	for k := range l.entries {
		if k.Day < today-KeptDays || k.Day > today+KeptDays {
			delete(l.entries, k)
			if l.owners[k.Day]--; l.owners[k.Day] == 0 {
				delete(l.owners, k.Day)
			}
			l.changed[k] = true
		}
	}
}

// Change is an entry that was changed or removed.
type Change struct {
	Name  string // of the entry in the journal
	Entry *Entry // nil: it was removed
}

// Changes returns the entries that have changed since the last call, in a fixed order.
func (l *Ledger) Changes() (out []Change) {
	if len(l.changed) == 0 {
		return nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.changed), func(x, y Key) int { return x.Compare(&y) }) {
		c := Change{Name: k.name()}
		if s := l.entries[k]; s != nil {
			c.Entry = &Entry{k, *s}
		}
		out = append(out, c)
	}
	clear(l.changed)
	return out
}

// name returns the name of an entry in the journal. No namespace has a slash in its name.
func (k *Key) name() string {
	return fmt.Sprintf("%s/%t/%d/%s/%s", k.Day, k.Unix, k.UID, k.Namespace, k.Owner)
}

// AddTo adds the entries from a day on to a sum of ledgers.
func (l *Ledger) AddTo(t Total, since Day) {
	for k, s := range l.entries {
		if k.Day >= since {
			t.Add(k, s)
		}
	}
}

// Total adds up entries of several ledgers.
type Total map[Key]*Sums

// Add adds sums to an entry.
func (t Total) Add(k Key, s *Sums) {
	if t[k] == nil {
		t[k] = new(Sums)
	}
	t[k].Add(s, 1)
}

// Entries returns the entries that have something, by day, namespace and owner.
func (t Total) Entries() []Entry {
	out := []Entry{}
	for k, s := range t {
		if !s.IsZero() {
			out = append(out, Entry{k, *s})
		}
	}
	slices.SortFunc(out, func(x, y Entry) int { return x.Compare(&y.Key) })
	return out
}
