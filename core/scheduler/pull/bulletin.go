package pull

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/scheduler"
)

// Bulletin is a buyer's message to all others: its best work, and the offers that rest with it.
type Bulletin struct {
	Bid     auction.Bid `json:"b"`
	Resting [2]int32    `json:"r"`           // offers without a task: of workers that run short tasks only, and of the others
	Tasks   int32       `json:"n,omitempty"` // waiting tasks
}

// Number implements scheduler.Payload.
func (b *Bulletin) Number() int32 { return b.Resting[0]<<16 ^ b.Resting[1]<<8 ^ b.Tasks }

// ReadPayload implements scheduler.PayloadReader.
func (m *Market) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	if k != kindBulletin {
		return nil, scheduler.RefusePayload(k, raw)
	}
	b, err := scheduler.DecodePayload[Bulletin](raw)
	if err != nil {
		return nil, err
	}
	return b, cmp.Or(scheduler.CheckRange("resting offers of reserved workers", b.Resting[0], 0, math.MaxInt32),
		scheduler.CheckRange("resting offers", b.Resting[1], 0, math.MaxInt32-b.Resting[0]),
		scheduler.CheckRange("waiting tasks", b.Tasks, 0, math.MaxInt32),
		scheduler.CheckRange("tasks left by work", b.Bid.Least, 0, math.MaxInt64),
		scheduler.CheckRange("tasks left by age", b.Bid.Left, 0, math.MaxInt64),
		scheduler.CheckRange("long jobs", b.Bid.Seen, 0, math.MaxInt64))
}

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
		d.Note(at-d.Now, scheduler.Msg{Kind: kindTell})
	}
}

// sendBulletin sends a bulletin to all other buyers.
func (m *Market) sendBulletin(d *scheduler.Env, b *buyer) {
	b.lastBid, b.lastTell, b.credit = b.queue.Bid(), d.Now, 0
	b.lastResting = [2]int32{int32(len(b.resting[0])), int32(len(b.resting[1]))}
	// resting offers are one number: reserved workers' ones are the part that long jobs cannot use
	told := &Bulletin{Bid: b.lastBid, Resting: b.lastResting, Tasks: b.queue.Tasks()}
	msg := scheduler.Msg{Kind: kindBulletin, Role: scheduler.Buyer, From: b.id, At: d.Now, Sure: true, Payload: told}
	for k := range m.buyers {
		if msg.To = int32(k); msg.To != b.id {
			d.Send(msg)
		}
	}
	if !b.repeating && told.Tasks > 0 {
		b.repeating = true
		d.Note(tellAgain, scheduler.Msg{Kind: kindTellAgain})
	}
}

// takeBulletin handles a bulletin, and forwards resting offers to the work that it announces.
func (m *Market) takeBulletin(d *scheduler.Env, b *buyer, msg scheduler.Msg) {
	from := msg.From
	if msg.At < b.heard[from] {
		return // an older one arrived late
	}
	b.heard[from] = msg.At
	told := msg.Payload.(*Bulletin)
	b.bids[from] = told.Bid
	b.believe[0][from], b.believe[1][from] = told.Resting[0], told.Resting[1]
	wanted := told.Tasks
	for side := range b.resting {
		if _, _, ok := auction.Choose(b.bids[from:from+1], side == 0, false); !ok {
			continue
		}
		for wanted > 0 {
			r, ok := b.takeResting(side)
			if !ok {
				break
			}
			wanted--
			d.Send(scheduler.Msg{Kind: kindOffer, Role: scheduler.Buyer, To: from, From: r.worker, Offer: r.offer,
				Hops: 1, Sure: true})
		}
	}
	m.announceLoss(d, b)
}

// Died implements scheduler.Mortal.
func (m *Market) Died(d *scheduler.Env) {
	w := &m.workers[d.Self.ID]
	w.down = true
	w.Crash()
}

// Noticed implements scheduler.Mortal: what a buyer granted to the worker goes back into its queue.
func (m *Market) Noticed(d *scheduler.Env, worker int32) {
	b := &m.buyers[d.Self.ID]
	b.gone[worker] = true
	var back []grant
	for k, g := range b.grants {
		if int32(k>>32) == worker {
			back = append(back, g)
			delete(b.grants, k)
		}
	}
	slices.SortFunc(back, func(x, y grant) int { return cmp.Compare(x.Offer, y.Offer) })
	for _, g := range back {
		b.queue.Return(g.terms, g.Task)
	}
	if len(back) > 0 {
		m.settleWork(d, b)
	}
}

// Back implements scheduler.Mortal.
func (m *Market) Back(d *scheduler.Env, worker int32) {
	if d.Self.Role == scheduler.Buyer {
		delete(m.buyers[d.Self.ID].gone, worker)
		return
	}
	m.workers[worker].down = false
	m.sendOffer(d, worker)
}
