package rollout

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Two members may take themselves for the steward of a service for a while: after a cut workers can be asked again before
// the members have heard of one another. Each then ends the other's term. So a steward that was outbid once begins a higher
// term at once, since it may be that of a member which died; outbid again by a member that lives, all but one of the two
// wait until they may have heard more.
const (
	yieldFor    = 20 * time.Second // at first; twice as long each time
	mostYield   = 2 * time.Minute
	outbidApart = time.Minute // since the last time that it was outbid: then it is a first time again
)

// rivalry is what a steward remembers of being outbid.
type rivalry struct {
	app    string           // the id of its service's app
	self   cluster.WorkerID // of its terms
	rival  cluster.WorkerID // that has outbid it, as far as it was told; "": it was not
	times  int              // in a row
	newest time.Time
	until  time.Time // it begins no term before
}

// office is the steward's term, and what it must heed before it begins the next.
type office struct {
	term    cluster.Term
	resting bool   // it has said that it has done all
	least   uint64 // the number of its next term
	rivalry rivalry
}

// endTermsUpTo ends the steward's term. Its next one is beyond a number.
func (o *office) endTermsUpTo(number uint64) {
	o.least, o.term = max(o.least, number+1), cluster.Term{}
}

// endTerm ends the steward's term.
func (o *office) endTerm() { o.endTermsUpTo(o.term.Number) }

// outbid takes that a worker has obeyed a higher term. A member that is still the steward begins a higher one.
func (o *office) outbid(now time.Time, err error) {
	in, is := fault.Detail[cluster.Term](err)
	if is && (in.Compare(o.term) <= 0 || o.term.IsZero() && in.Number < o.least) {
		return // the order was of an earlier term of its own, and others of that one were refused before
	}
	if is {
		o.rivalry.rival = in.Member
		o.endTermsUpTo(in.Number)
	}
	o.rivalry.outbid(now)
	o.endTerm()
}

// Outbid returns how often in a row the steward was told that another member's higher term is in force.
func (s *Steward) Outbid() int { return s.office.rivalry.times }

// outbid notes that another term than the steward's is in force.
func (r *rivalry) outbid(now time.Time) {
	if !now.Before(r.newest.Add(outbidApart)) {
		r.times = 0
	}
	r.times++
	r.newest = now
	if r.times == 1 || r.first() {
		return
	}
	r.until = now.Add(min(yieldFor<<min(r.times-2, 8), mostYield))
}

// first reports whether the steward goes before the member that outbids it. Both say the same.
func (r *rivalry) first() bool {
	return r.rival != "" && cluster.Steward([]cluster.WorkerID{r.self, r.rival}, r.app) == r.self
}
