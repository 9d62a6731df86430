// Package pull is souk's own architecture for short tasks, `market` in reports: the pull auction of package auction
// among a few buyers and all workers.
//
// A worker that is free offers itself to one buyer. The buyer knows the best bid of each other buyer from bulletins,
// which are sent when a bid changes and not for each task, and either grants the worker its own best task or forwards
// the offer to the buyer with the better bid. An offer for which no buyer has work rests at its buyer alone, so no two
// buyers can compete for the same idle worker. A job that arrives takes the offers resting at its buyer, then has
// tasks granted through buyers that have more, and the rest waits in the buyer's queue, with a bulletin to the others,
// which forward the offers that rest with them.
//
// Liveness: a buyer with work has told all others, no offer rests while its buyer believes that another has work for
// it, and grants and offers are repeated until they are answered.
package pull

import (
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/scheduler"
)

// Buyers is the default number of buyers.
const Buyers = 10

// Bounds and times of the protocol.
const (
	maxHops   = 3                             // how often an offer is forwarded before it must be used or rest
	firstTry  = 100 * scheduler.Second / 1000 // until an unanswered offer or grant is repeated; doubles each time
	lastTry   = scheduler.Second              // up to this
	tellGap   = 10 * scheduler.Second / 1000  // between two bulletins of one buyer
	worseGap  = 10 * scheduler.Second / 1000  // the same, if they only withdraw work
	tellAgain = 30 * scheduler.Second         // a buyer with work repeats its bulletin
)

// The kinds of messages.
const (
	// to a buyer: worker From is free, by Offer; Flag: a turn by age; Done: it has run Task of Job, which buyer Count
	// granted for the offer before
	kindOffer       scheduler.Kind = iota
	kindGrant                      // to a worker: Task of Job, for Offer
	kindReply                      // to a buyer: worker From's answer for Offer; Flag: accepted
	kindKept                       // to a worker: Offer rests
	kindEnded                      // to a buyer: worker From has run Task of Job, which it granted for the offer before
	kindBulletin                   // to a buyer: the payload is that of buyer From
	kindDelegate                   // to a buyer: Count tasks of Job from Task on are granted through it
	kindReturn                     // to a buyer: there were no offers for them
	kindRepeatOffer                // a note to a worker
	kindRepeatGrant                // a note to a buyer
	kindTell                       // a note to a buyer
	kindTellAgain                  // a note to a buyer
)

// Market is the architecture.
type Market struct {
	rules   auction.Rules
	buyers  []buyer
	workers []worker
	reserve int32
}

type worker struct {
	auction.Puller
	home int32 // the buyer it sends offers to
	down bool  // it does not answer
}

// rest is an offer that rests with a buyer.
type rest struct{ worker, offer int32 }

// grant is a task that a buyer gave to a worker and that has not ended, as far as the buyer knows.
type grant struct {
	auction.TaskGrant
	terms    auction.JobTasks
	accepted bool // the worker has answered; until then the grant is repeated
}

type buyer struct {
	id      int32
	queue   *auction.TaskQueue
	bids    []auction.Bid // as last received from each buyer; its own at its own index
	heard   []scheduler.Time
	resting [2][]rest        // of reserved workers, and of the others
	believe [2][]int32       // how many offers rest with each buyer, as far as known
	grants  map[uint64]grant // by offerKey
	gone    map[int32]bool   // workers that are known to be dead

	lastBid     auction.Bid
	lastResting [2]int32
	lastTell    scheduler.Time
	telling     bool           // a note to send a bulletin is pending
	tellAt      scheduler.Time // time of that note
	repeating   bool
	credit      int64 // earned by offers that rest or leave, spent on bulletins about them
}

// New makes the market of a fleet. All workers are idle, and their offers rest.
func New(fleet scheduler.Fleet, rules auction.Rules, buyers int) *Market {
	buyers = max(1, buyers)
	m := &Market{rules: rules, workers: make([]worker, fleet.Workers*max(1, fleet.Slots)),
		reserve: int32(fleet.Reserve * max(1, fleet.Slots))}
	for i := range buyers {
		b := buyer{id: int32(i), queue: auction.NewTaskQueue(rules), grants: map[uint64]grant{},
			gone: map[int32]bool{}, lastBid: auction.NoBid(), lastTell: -tellAgain,
			bids: make([]auction.Bid, buyers), heard: make([]scheduler.Time, buyers)}
		for k := range b.bids {
			b.bids[k] = auction.NoBid()
		}
		b.believe[0], b.believe[1] = make([]int32, buyers), make([]int32, buyers)
		m.buyers = append(m.buyers, b)
	}
	for w := range m.workers {
		wk := &m.workers[w]
		wk.home = int32(w % buyers)
		if fleet.Busy {
			wk.Puller.Busy = true
			continue
		}
		b := &m.buyers[wk.home]
		offer := wk.Free()
		wk.Acknowledge(offer)
		side := m.sideOf(int32(w))
		b.resting[side] = append(b.resting[side], rest{int32(w), offer})
	}
	for i := range m.buyers {
		for side := range 2 {
			m.buyers[i].lastResting[side] = int32(len(m.buyers[i].resting[side]))
			for k := range m.buyers {
				m.buyers[i].believe[side][k] = int32(len(m.buyers[k].resting[side]))
			}
		}
	}
	return m
}

// sideOf is 0 for a reserved worker, else 1.
func (m *Market) sideOf(worker int32) int {
	if worker < m.reserve {
		return 0
	}
	return 1
}

func jobTerms(d *scheduler.Env, job int32) auction.JobTasks {
	j := d.Job(job)
	return auction.JobTasks{Job: job, Tasks: j.Tasks, Long: j.Long, Submitted: j.Submitted, Estimate: j.Estimate}
}

// Parties implements scheduler.Strategy: each slot is a worker.
func (m *Market) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(m.workers), Buyers: len(m.buyers)}
}

// Entry implements scheduler.Strategy.
func (m *Market) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy.
func (m *Market) Arrive(d *scheduler.Env, job int32) {
	b := &m.buyers[d.Self.ID]
	work := jobTerms(d, job)
	b.queue.Observe(work)
	work.Next = m.grantRange(d, b, work, 0, work.Tasks)
	work.Next = m.delegateTasks(d, b, work)
	if work.Next < work.Tasks {
		b.queue.Add(work)
		m.announceWork(d, b)
	}
}

// grantRange grants tasks from to end-1 of a job to workers whose offers rest with b, and returns the first task that
// it could not grant.
func (m *Market) grantRange(d *scheduler.Env, b *buyer, work auction.JobTasks, from, end int32) int32 {
	for side := range b.resting {
		if side == 0 && work.Long {
			continue
		}
		for from < end {
			r, ok := b.takeResting(side)
			if !ok {
				break
			}
			m.sendGrant(d, b, r, work, from)
			from++
		}
	}
	return from
}

// takeResting removes and returns the newest resting offer that is not answered, of a worker that is not known to be
// gone.
func (b *buyer) takeResting(side int) (rest, bool) {
	for n := len(b.resting[side]); n > 0; n = len(b.resting[side]) {
		r := b.resting[side][n-1]
		b.resting[side] = b.resting[side][:n-1]
		b.credit++
		if _, twice := b.grants[offerKey(r.worker, r.offer)]; !twice && !b.gone[r.worker] {
			return r, true
		}
	}
	return rest{}, false
}

// delegateTasks has tasks granted through the buyers believed to have most resting offers.
func (m *Market) delegateTasks(d *scheduler.Env, b *buyer, work auction.JobTasks) int32 {
	for range len(m.buyers) - 1 {
		who, most := -1, int32(0)
		for k := range m.buyers {
			n := b.believe[1][k]
			if !work.Long {
				n += b.believe[0][k]
			}
			if k != int(b.id) && n > most {
				who, most = k, n
			}
		}
		if who < 0 || work.Next == work.Tasks {
			break
		}
		n := min(most, work.Tasks-work.Next)
		d.Send(scheduler.Msg{Kind: kindDelegate, Role: scheduler.Buyer, To: int32(who), From: b.id, Job: work.Job,
			Task: work.Next, Count: n, Sure: true})
		work.Next += n
		if fromReserve := min(n, b.believe[0][who]); !work.Long {
			b.believe[0][who] -= fromReserve
			n -= fromReserve
		}
		b.believe[1][who] -= n
	}
	return work.Next
}

func offerKey(worker, offer int32) uint64 { return uint64(worker)<<32 | uint64(uint32(offer)) }

// sendGrant sends a grant, and remembers it until the task has ended.
func (m *Market) sendGrant(d *scheduler.Env, b *buyer, r rest, work auction.JobTasks, task int32) {
	g := auction.TaskGrant{Buyer: b.id, Offer: r.offer, Job: work.Job, Task: task}
	b.grants[offerKey(r.worker, r.offer)] = grant{g, work, false}
	msg := scheduler.Msg{Kind: kindGrant, To: r.worker, From: b.id, Job: work.Job, Offer: r.offer, Task: task,
		Gives: true}
	d.Send(msg)
	msg.Kind, msg.From, msg.Gives = kindRepeatGrant, r.worker, false
	d.Note(firstTry, msg)
}

// Ended implements scheduler.Strategy: the worker offers itself to the buyer whose task it ran.
func (m *Market) Ended(d *scheduler.Env, _, _ int32) {
	wk := &m.workers[d.Self.ID]
	wk.home = wk.Current().Buyer
	m.sendOffer(d, d.Self.ID)
}

// Freed implements scheduler.Strategy.
func (m *Market) Freed(d *scheduler.Env) { m.sendOffer(d, d.Self.ID) }

func (m *Market) sendOffer(d *scheduler.Env, w int32) {
	wk := &m.workers[w]
	ran := wk.Current()
	n := wk.Free()
	msg := scheduler.Msg{Kind: kindOffer, Role: scheduler.Buyer, To: wk.home, From: w, Offer: n, Job: ran.Job,
		Task: ran.Task, Count: ran.Buyer, Done: ran.Offer > 0}
	d.Send(msg)
	msg.Kind = kindRepeatOffer
	d.Note(firstTry, msg)
}

// Deliver implements scheduler.Strategy.
func (m *Market) Deliver(d *scheduler.Env, msg scheduler.Msg) {
	switch msg.Kind {
	case kindOffer:
		m.takeOffer(d, &m.buyers[msg.To], msg)
	case kindGrant:
		m.answerGrant(d, msg)
	case kindReply:
		m.takeReply(d, &m.buyers[msg.To], msg)
	case kindKept:
		if wk := &m.workers[msg.To]; !wk.down {
			wk.Acknowledge(msg.Offer)
		}
	case kindEnded:
		m.buyers[msg.To].recordEnd(msg)
	case kindBulletin:
		m.takeBulletin(d, &m.buyers[msg.To], msg)
	case kindDelegate:
		m.takeDelegated(d, &m.buyers[msg.To], msg)
	case kindReturn:
		b := &m.buyers[msg.To]
		for n := msg.Task; n < msg.Task+msg.Count; n++ {
			b.queue.Return(jobTerms(d, msg.Job), n)
		}
		m.settleWork(d, b)
	case kindRepeatOffer:
		m.repeatOffer(d, msg)
	case kindRepeatGrant:
		m.repeatGrant(d, &m.buyers[msg.To], msg)
	case kindTell:
		b := &m.buyers[msg.To]
		b.telling = false
		m.sendBulletin(d, b)
	case kindTellAgain:
		b := &m.buyers[msg.To]
		if b.repeating = b.queue.Tasks() > 0; b.repeating {
			m.sendBulletin(d, b)
			d.Note(tellAgain, msg)
		}
	}
}

// takeOffer uses an offer for the best bid that b knows.
func (m *Market) takeOffer(d *scheduler.Env, b *buyer, msg scheduler.Msg) {
	if b.gone[msg.From] {
		return
	}
	switch {
	case msg.Done && msg.Count == b.id:
		b.recordEnd(msg)
	case msg.Done: // the offer that told its buyer was lost
		ended := msg
		ended.Kind, ended.To, ended.Sure = kindEnded, msg.Count, true
		d.Send(ended)
	}
	if _, twice := b.grants[offerKey(msg.From, msg.Offer)]; twice {
		return // the grant is on its way, and is repeated until answered
	}
	r, reserved := rest{msg.From, msg.Offer}, m.sideOf(msg.From) == 0
	b.bids[b.id] = b.queue.Bid()
	who, order, ok := auction.Choose(b.bids, reserved, msg.Flag)
	if ok && order == auction.ByLong && msg.Hops == 0 && m.rules.Aged(b.bids, d.Now) {
		msg.Flag = true
		who, order, ok = auction.Choose(b.bids, reserved, true)
	}
	if ok && who != int(b.id) && msg.Hops >= maxHops {
		_, order, ok = auction.Choose(b.bids[b.id:b.id+1], reserved, msg.Flag)
		who = int(b.id)
	}
	switch {
	case !ok:
		side := m.sideOf(msg.From)
		b.resting[side] = append(b.resting[side], r)
		b.credit++
		d.Send(scheduler.Msg{Kind: kindKept, To: msg.From, Offer: msg.Offer})
	case who == int(b.id):
		work, task, _ := b.queue.Take(order)
		m.sendGrant(d, b, r, work, task)
	default:
		msg.To, msg.Job, msg.Task, msg.Count, msg.Done = int32(who), 0, 0, 0, false
		msg.Hops++
		msg.Sure = true
		d.Send(msg)
	}
	m.announceLoss(d, b)
}

// isOf reports whether a message is about the task that was granted. An offer that arrives late can be granted twice.
func (g *grant) isOf(msg scheduler.Msg) bool { return g.Job == msg.Job && g.Task == msg.Task }

// recordEnd forgets a grant when the worker's next offer says that it has run the task.
func (b *buyer) recordEnd(msg scheduler.Msg) {
	last := offerKey(msg.From, msg.Offer-1)
	if g, ok := b.grants[last]; ok && g.isOf(msg) {
		delete(b.grants, last)
	}
}

// answerGrant returns a worker's answer to a grant.
func (m *Market) answerGrant(d *scheduler.Env, msg scheduler.Msg) {
	wk := &m.workers[msg.To]
	if wk.down {
		return
	}
	reply := wk.Answer(auction.TaskGrant{Buyer: msg.From, Offer: msg.Offer, Job: msg.Job, Task: msg.Task})
	if reply == auction.Accept {
		d.Run(msg.Job, msg.Task)
	}
	d.Send(scheduler.Msg{Kind: kindReply, Role: scheduler.Buyer, To: msg.From, From: msg.To, Offer: msg.Offer,
		Job: msg.Job, Task: msg.Task, Flag: reply != auction.Refuse})
}

func (m *Market) takeReply(d *scheduler.Env, b *buyer, msg scheduler.Msg) {
	k := offerKey(msg.From, msg.Offer)
	g, ok := b.grants[k]
	switch {
	case !ok || !g.isOf(msg):
	case msg.Flag:
		g.accepted = true
		b.grants[k] = g
	case !g.accepted:
		delete(b.grants, k)
		d.Conflicts++
		b.queue.Return(g.terms, g.Task)
		m.settleWork(d, b)
	}
}

// takeDelegated grants tasks of another buyer's job to workers whose offers rest here, and returns the rest.
func (m *Market) takeDelegated(d *scheduler.Env, b *buyer, msg scheduler.Msg) {
	end := msg.Task + msg.Count
	next := m.grantRange(d, b, jobTerms(d, msg.Job), msg.Task, end)
	if next < end {
		d.Send(scheduler.Msg{Kind: kindReturn, Role: scheduler.Buyer, To: msg.From, From: b.id, Job: msg.Job,
			Task: next, Count: end - next, Sure: true})
	}
	m.announceLoss(d, b)
}

// settleWork gives returned work to the offers that rest here, and announces what is left.
func (m *Market) settleWork(d *scheduler.Env, b *buyer) {
	for side := range b.resting {
		for {
			b.bids[b.id] = b.queue.Bid()
			_, order, ok := auction.Choose(b.bids[b.id:b.id+1], side == 0, false)
			if !ok {
				break
			}
			r, ok := b.takeResting(side)
			if !ok {
				break
			}
			work, task, _ := b.queue.Take(order)
			m.sendGrant(d, b, r, work, task)
		}
	}
	m.announceWork(d, b)
}

func (m *Market) repeatOffer(d *scheduler.Env, msg scheduler.Msg) {
	wk := &m.workers[msg.To]
	if wk.down || !wk.ShouldRepeat(msg.Offer) {
		return
	}
	wk.home = d.RNG.Int32N(int32(len(m.buyers))) // its buyer may be the one that is down
	offer := msg
	offer.Kind, offer.Note, offer.Role, offer.To, offer.Hops = kindOffer, false, scheduler.Buyer, wk.home, 0
	d.Send(offer)
	msg.Hops++
	d.Note(min(firstTry<<min(msg.Hops, 8), lastTry), msg)
}

func (m *Market) repeatGrant(d *scheduler.Env, b *buyer, msg scheduler.Msg) {
	g, ok := b.grants[offerKey(msg.From, msg.Offer)]
	if !ok || g.accepted {
		return
	}
	d.Send(scheduler.Msg{Kind: kindGrant, To: msg.From, From: b.id, Job: g.Job, Offer: msg.Offer, Task: g.Task,
		Gives: true})
	msg.Hops = min(msg.Hops+1, 8)
	d.Note(min(firstTry<<msg.Hops, lastTry), msg)
}
