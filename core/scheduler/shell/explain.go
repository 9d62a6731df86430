package shell

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler"
)

// Said is what a party says of a batch.
type Said struct {
	Role scheduler.Role `json:"r"`
	Text string         `json:"t"` // see scheduler.Explainer
}

// Answer is a member's answer to Node.Explain.
type Answer struct {
	Question int32
	By       cluster.WorkerID
	Said     []Said // of those of its parties that know something
}

// Bounds of an answer.
const (
	maxSaid     = 64  // parties
	maxSaidText = 256 // bytes of each text
)

// Explain asks all members of a lane how a batch stands with their parties. This one's say it at once; the others are
// returned, and each answers in Out.Says, unless the generation ends or the member dies before. A question is a number of
// the owner's, above 0.
func (n *Node) Explain(now time.Time, question int32, t Token) (own []Said, others []cluster.WorkerID) {
	l := n.lanes[t.Lane]
	if l == nil || l.number != t.Generation || l.strategy == nil {
		return nil, nil
	}
	p := Packet{Verb: Explain, Lane: l.key, Generation: l.number, Msg: scheduler.Msg{Job: t.Batch, Offer: question},
		Facts: []Fact{{t.Batch, l.facts[t.Batch]}}}
	for _, id := range l.members {
		if id != n.o.Self {
			n.sendTo(id, p)
			others = append(others, id)
		}
	}
	return l.explain(now, p.Facts[0]), others
}

// answerExplain answers another member.
func (l *lane) answerExplain(now time.Time, from cluster.WorkerID, p *Packet) {
	answer := Packet{Verb: Explained, Lane: l.key, Generation: l.number, Msg: scheduler.Msg{Offer: p.Msg.Offer}}
	if len(p.Facts) == 1 && l.isPossible(p.Facts[0]) {
		answer.Said = l.explain(now, p.Facts[0])
	}
	l.n.sendTo(from, answer)
}

// explain asks the parties of this member. A party that was not told of the batch knows it for this question only.
func (l *lane) explain(now time.Time, f Fact) (all []Said) {
	x, can := l.strategy.(scheduler.Explainer)
	if !can {
		return nil
	}
	if _, known := l.facts[f.Batch]; !known {
		l.facts[f.Batch] = f.Job
		defer delete(l.facts, f.Batch)
	}
	parties := []scheduler.Party{{Role: scheduler.Buyer, ID: l.buyer}}
	if l.worker >= 0 {
		parties = append(parties, scheduler.Party{Role: scheduler.Worker, ID: l.worker})
	}
	for i, id := range l.centers {
		if id == l.n.o.Self {
			parties = append(parties, scheduler.Party{Role: scheduler.Center, ID: int32(i)})
		}
	}
	count := l.strategy.Parties()
	for _, p := range parties {
		if p.Role == scheduler.Buyer && int(p.ID) >= count.Buyers { // a central place alone
			continue
		}
		l.runOneStep(now, p, func(d *scheduler.Env) {
			if text := x.Explain(d, f.Batch); text != "" {
				all = append(all, Said{p.Role, text})
			}
		})
	}
	return shortenSaid(all)
}

// shortenSaid bounds what is said.
func shortenSaid(all []Said) []Said {
	all = all[:min(len(all), maxSaid)]
	for i := range all {
		all[i].Text = all[i].Text[:min(len(all[i].Text), maxSaidText)]
	}
	return all
}
