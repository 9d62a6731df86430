package rollout

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Two members may both act as steward of a service for a while: after a network partition, workers may be reachable
// before the members have heard of each other. Each then ends the other's term. So a steward that is outbid once
// begins a higher term at once, since the other may be of a dead member; if a living member outbids it again, all but
// one of them wait until they may have heard more.
const (
	yieldFor    = 20 * time.Second // at first; doubles each time
	mostYield   = 2 * time.Minute
	outbidApart = time.Minute // after this long without being outbid, the next time counts as the first
)

// rivalry is a steward's memory of being outbid.
type rivalry struct {
	app    string           // the service's app ID
	self   cluster.WorkerID // the member of its own terms
	rival  cluster.WorkerID // the member that has outbid it, as far as known; "": none
	times  int              // times in a row
	newest time.Time
	until  time.Time // it begins no term before
}

// office is the steward's term, and the limits on its next one.
type office struct {
	term    cluster.Term
	resting bool   // it has announced that it has done all
	least   uint64 // the lowest number of its next term
	rivalry rivalry
}

// endTermsUpTo ends the steward's term; the next one has a higher number than number.
func (o *office) endTermsUpTo(number uint64) {
	o.least, o.term = max(o.least, number+1), cluster.Term{}
}

// endTerm ends the steward's term.
func (o *office) endTerm() { o.endTermsUpTo(o.term.Number) }

// outbid handles a worker's answer that it has obeyed a higher term. A member that is still the steward begins a
// higher one.
func (o *office) outbid(now time.Time, err error) {
	in, is := fault.Detail[cluster.Term](err)
	if is && (in.Compare(o.term) <= 0 || o.term.IsZero() && in.Number < o.least) {
		return // the order was of an earlier term of its own, which already failed
	}
	if is {
		o.rivalry.rival = in.Member
		o.endTermsUpTo(in.Number)
	}
	o.rivalry.outbid(now)
	o.endTerm()
}

// Outbid returns how often in a row another member's higher term has outbid the steward.
func (s *Steward) Outbid() int { return s.office.rivalry.times }

// outbid records that another term has replaced the steward's.
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

// first reports whether the steward has precedence over the member that outbids it. Both compute the same.
func (r *rivalry) first() bool {
	return r.rival != "" && cluster.Steward([]cluster.WorkerID{r.self, r.rival}, r.app) == r.self
}
