package pull

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/sim/scheduler"
)

// announceWork tells the other buyers about new work at b.
func (m *Market) announceWork(d *scheduler.Env, b *buyer) {
	bid := b.queue.Bid()
	if bid.Short < b.lastBid.Short || bid.Long < b.lastBid.Long {
		m.tellIn(d, b, tellGap)
	}
	m.announceLoss(d, b)
}

// announceLoss tells the others, less urgently, that b no longer has the work it announced; and, once enough has
// changed to be worth the messages, how many offers rest with it.
func (m *Market) announceLoss(d *scheduler.Env, b *buyer) {
	bid := b.queue.Bid()
	if bid.Short > b.lastBid.Short || bid.Long > b.lastBid.Long {
		m.tellIn(d, b, worseGap)
		return
	}
	if b.credit < int64(2*len(m.buyers)) {
		return
	}
	for side := range b.resting {
		if n, told := int32(len(b.resting[side])), b.lastResting[side]; n > 2*told || 2*n < told {
			m.tellIn(d, b, worseGap)
			return
		}
	}
}

// tellIn sends a bulletin at once, or when gap has passed since the last one.
func (m *Market) tellIn(d *scheduler.Env, b *buyer, gap scheduler.Time) {
	at := b.lastTell + gap
	if at <= d.Now {
		m.sendBulletin(d, b)
		return
	}
	if !b.telling || at < b.tellAt {
		b.telling, b.tellAt = true, at
		d.Note(at-d.Now, scheduler.Msg{Kind: kindTell, To: b.id})
	}
}

// sendBulletin sends a bulletin to all other buyers.
func (m *Market) sendBulletin(d *scheduler.Env, b *buyer) {
	b.lastBid, b.lastTell, b.credit = b.queue.Bid(), d.Now, 0
	b.lastResting = [2]int32{int32(len(b.resting[0])), int32(len(b.resting[1]))}
	// resting offers are one number: reserved workers' ones are the part that long jobs cannot use
	msg := scheduler.Msg{Kind: kindBulletin, From: b.id, At: d.Now, Sure: true,
		Bulletin: &scheduler.Bulletin{Bid: b.lastBid, Resting: b.lastResting, Tasks: b.queue.Tasks()}}
	for k := range m.buyers {
		if msg.To = int32(k); msg.To != b.id {
			d.Send(msg)
		}
	}
	if !b.repeating && msg.Bulletin.Tasks > 0 {
		b.repeating = true
		d.Note(tellAgain, scheduler.Msg{Kind: kindTellAgain, To: b.id})
	}
}

// takeBulletin handles a bulletin, and forwards resting offers to the work that it announces.
func (m *Market) takeBulletin(d *scheduler.Env, b *buyer, msg scheduler.Msg) {
	from := msg.From
	if msg.At < b.heard[from] {
		return // an older one arrived late
	}
	b.heard[from] = msg.At
	b.bids[from] = msg.Bulletin.Bid
	b.believe[0][from], b.believe[1][from] = msg.Bulletin.Resting[0], msg.Bulletin.Resting[1]
	wanted := msg.Bulletin.Tasks
	for side := range b.resting {
		if _, _, ok := auction.Choose(b.bids[from:from+1], side == 0, false); !ok {
			continue
		}
		for wanted > 0 {
			r, ok := m.takeResting(b, side)
			if !ok {
				break
			}
			wanted--
			d.Send(scheduler.Msg{Kind: kindOffer, To: from, From: r.worker, Offer: r.offer, Hops: 1, Sure: true})
		}
	}
	m.announceLoss(d, b)
}

// Died implements scheduler.Mortal.
func (m *Market) Died(_ *scheduler.Env, w int32) {
	m.workers[w].down = true
	m.workers[w].Crash()
}

// Lost implements scheduler.Mortal: the task goes back to the buyer that granted it, if that still waits for the
// answer, else to the buyer of its job.
func (m *Market) Lost(d *scheduler.Env, w, job, n int32) {
	b := &m.buyers[d.Jobs[job].Buyer]
	for i := range m.buyers {
		for k, p := range m.buyers[i].pending {
			if int32(k>>32) == w && p.granted.Job == job && p.granted.Task == n {
				b = &m.buyers[i]
				delete(b.pending, k)
			}
		}
	}
	b.queue.Return(jobTerms(d, job), n)
	m.settleWork(d, b)
}

// Noticed implements scheduler.Mortal: unanswered grants to the worker go back into the queues.
func (m *Market) Noticed(d *scheduler.Env, w int32) {
	m.workers[w].gone = true
	for i := range m.buyers {
		b := &m.buyers[i]
		var back []pending
		for k, p := range b.pending {
			if int32(k>>32) == w {
				back = append(back, p)
				delete(b.pending, k)
			}
		}
		slices.SortFunc(back, func(x, y pending) int { return cmp.Compare(x.granted.Offer, y.granted.Offer) })
		for _, p := range back {
			b.queue.Return(p.terms, p.granted.Task)
		}
		if len(back) > 0 {
			m.settleWork(d, b)
		}
	}
}

// Back implements scheduler.Mortal.
func (m *Market) Back(d *scheduler.Env, w int32) {
	m.workers[w].down, m.workers[w].gone = false, false
	m.sendOffer(d, w)
}
