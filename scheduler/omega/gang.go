package omega

// Gang places the members of a group on one worker each, all or none, against workers that keep holds. It holds in the
// order of the workers' numbers, and at the first refusal releases all that it holds and waits outside: nobody waits
// while holding. Of two gangs that meet, the one that held their first common worker cannot be refused by the other on
// a later one, so one of them always goes on: there is no deadlock, and no endless giving way either.
//
// It is a value that is stepped: Next says what to ask, Answer takes what the worker said.
type Gang struct {
	workers []int // of each member, ascending
	at      int   // member whose turn it is
	phase   phase
}

type phase uint8

const (
	waiting   phase = iota // holds nothing
	holding                // members below at are held
	granting               // all are held; members below at are granted
	releasing              // members below at are still held
	undoing                // members below at are granted, and are to be freed: a hold ran out before its grant
	placed
)

// NewGang makes a gang whose members want one worker each; workers are sorted and differ.
func NewGang(workers []int) *Gang { return &Gang{workers: workers} }

// Act is what a gang asks of a worker.
type Act uint8

// The acts.
const (
	Nothing Act = iota // it waits for Retry, or is placed
	Hold
	Grant
	Release
	Free
)

// Retry starts a waiting gang again.
func (g *Gang) Retry() {
	if g.phase == waiting {
		g.phase, g.at = holding, 0
	}
}

// Placed says whether all members are granted.
func (g *Gang) Placed() bool { return g.phase == placed }

// Next gives what to ask of which worker for which member.
func (g *Gang) Next() (act Act, member, worker int) {
	switch g.phase {
	case holding:
		return Hold, g.at, g.workers[g.at]
	case granting:
		return Grant, g.at, g.workers[g.at]
	case releasing:
		return Release, g.at - 1, g.workers[g.at-1]
	case undoing:
		return Free, g.at - 1, g.workers[g.at-1]
	}
	return Nothing, 0, 0
}

// Answer takes the answer to what Next asked. Release and Free cannot be refused. Holds that a failed grant leaves
// behind it end by themselves.
func (g *Gang) Answer(yes bool) {
	switch g.phase {
	case holding:
		if !yes {
			g.back(releasing)
		} else if g.at++; g.at == len(g.workers) {
			g.phase, g.at = granting, 0
		}
	case granting:
		if !yes {
			g.back(undoing)
		} else if g.at++; g.at == len(g.workers) {
			g.phase = placed
		}
	case releasing, undoing:
		g.at--
		g.back(g.phase)
	}
}

func (g *Gang) back(p phase) {
	if g.phase = p; g.at == 0 {
		g.phase = waiting
	}
}
