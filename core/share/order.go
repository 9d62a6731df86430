package share

import (
	"math"
	"time"

	"github.com/soukhq/souk/machine"
)

const (
	// tolerance is how far use may be from what is due, in proportion, and count as equal.
	tolerance = 0.03
	// levelFactor is the ratio of standings that is one level.
	levelFactor = 2
	// holdWeight is how much what is occupied now counts, beside all that was used.
	holdWeight = 0.1
	// grain is the use, in worker-hours, that every count begins with, shared out as is due: a minute of the worker.
	// Differences that are small beside it make no difference.
	grain = 1.0 / 60
	// mostLevel bounds a level; ownerLevels is more than the levels between any two owners.
	mostLevel   = 500
	ownerLevels = 2 * (mostLevel + 1)
)

// anyBand is the scheduling that prices are compared by.
var anyBand = machine.Scheduling{}

// Standing is what an account has had of what it was due.
type Standing struct {
	Account
	Hours float64 `json:"hours"` // its use: worker-hours, decayed
	Held  float64 `json:"held"`  // the part of the worker that its tasks occupy, or are offered
	Due   float64 `json:"due"`   // the part of the worker that is due to it, of those that are compared
	// The account whose namespace has the least level goes first, and of a namespace the owner with the least. Those that
	// have had what they were due have 0, and those that have had more are above.
	NamespaceLevel int `json:"namespace_level"`
	OwnerLevel     int `json:"owner_level"`
}

// Order puts the levels into one: the least goes first.
func (s *Standing) Order() int { return ownerLevels*s.NamespaceLevel + s.OwnerLevel }

// Contest compares accounts that have tasks waiting, at one moment.
type Contest struct {
	owners  []party // by account
	spaces  []party // namespaces
	spaceOf []int   // by account
	levels  []int
}

// party is one of those that share something.
type party struct {
	weight, used, held float64
	in                 bool    // it is compared now
	due                float64 // its share of what is shared
	level              int
	sum                sum // of the owners in a namespace
}

// sum adds up parties that are compared.
type sum struct{ weight, used, held float64 }

func (s *sum) add(p *party) {
	s.weight, s.used, s.held = s.weight+p.weight, s.used+p.used, s.held+p.held
}

func (p *party) count(e *entry) {
	p.used, p.held = p.used+e.used, p.held+e.running+e.promised
}

// Contest begins to compare accounts, each once.
func (l *Ledger) Contest(now time.Time, accounts []Account) *Contest {
	c := &Contest{owners: make([]party, len(accounts)), spaceOf: make([]int, len(accounts)),
		levels: make([]int, len(accounts))}
	at := map[string]int{}
	for i, a := range accounts {
		k, known := at[a.Namespace]
		if !known {
			k = len(c.spaces)
			at[a.Namespace] = k
			c.spaces = append(c.spaces, party{weight: l.weightOf(a.Namespace)})
		}
		c.spaceOf[i], c.owners[i].weight = k, 1
		if e := l.entries[a]; e != nil {
			e.advanceTo(now)
			c.owners[i].count(e)
		}
	}
	for a, e := range l.entries { // those of a namespace that have no task waiting count as well
		if k, is := at[a.Namespace]; is {
			e.advanceTo(now)
			c.spaces[k].count(e)
		}
	}
	return c
}

// Hold counts a part of the worker as occupied by an account, by its index.
func (c *Contest) Hold(i int, part float64) {
	c.owners[i].held += part
	c.spaces[c.spaceOf[i]].held += part
}

// Levels returns the levels of accounts, by index: the least goes first. Only those for which in is true are compared;
// nil: all. The result is valid until the next call.
func (c *Contest) Levels(in []bool) []int {
	for k := range c.spaces {
		c.spaces[k].in, c.spaces[k].sum = false, sum{}
	}
	for i := range c.owners {
		p, space := &c.owners[i], &c.spaces[c.spaceOf[i]]
		if p.in = in == nil || in[i]; p.in {
			space.in = true
			space.sum.add(p)
		}
	}
	var all sum
	for k := range c.spaces {
		if p := &c.spaces[k]; p.in {
			all.add(p)
		}
	}
	for k := range c.spaces {
		if p := &c.spaces[k]; p.in {
			p.judge(&all, 1)
		}
	}
	for i := range c.owners {
		if p, space := &c.owners[i], &c.spaces[c.spaceOf[i]]; p.in {
			p.judge(&space.sum, space.due)
			c.levels[i] = ownerLevels*space.level + p.level
		}
	}
	return c.levels
}

// judge sets what is due to one of the parties that share a part of the worker, and its level.
func (p *party) judge(all *sum, part float64) {
	p.due = p.weight / all.weight
	had := (p.used+p.due*grain*part)/(all.used+grain*part) + holdWeight*p.held/part
	p.level = levelOf(had / (1 + holdWeight*all.held/part) / p.due)
}

// Standings compares accounts that have tasks waiting, each once. The results are in the same order.
func (l *Ledger) Standings(now time.Time, accounts []Account) []Standing {
	c := l.Contest(now, accounts)
	out := make([]Standing, len(accounts))
	c.Levels(nil)
	for i, a := range accounts {
		p, space := &c.owners[i], &c.spaces[c.spaceOf[i]]
		out[i] = Standing{a, p.used, p.held, space.due * p.due, space.level, p.level}
	}
	return out
}

// levelOf returns the level of a standing, where 1 is what is due.
func levelOf(standing float64) int {
	switch above, below := standing/(1+tolerance), (1-tolerance)/standing; {
	case above > 1:
		return 1 + wholeLevels(above)
	case below > 1:
		return -1 - wholeLevels(below)
	}
	return 0
}

func wholeLevels(ratio float64) int {
	return int(min(math.Log(ratio)/math.Log(levelFactor), mostLevel-1))
}
