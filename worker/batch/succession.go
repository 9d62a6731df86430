package batch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
)

// lookAtMembers gives jobs heirs, and takes over those of members that are gone.
func (b *Buyer) lookAtMembers(now time.Time) {
	h := b.heirs
	if now.Sub(h.looked) < membersEvery {
		return
	}
	h.looked = now
	gone := b.giveHeirs(now)
	heard := h.members.Heard()
	b.askNewlyHeard(heard)
	if h.asking {
		return
	}
	lost, ask := h.Copies.Due(now, gone)
	unclaimed := b.dispatcher.Unclaimed(gone)
	if len(lost)+len(ask)+len(unclaimed) > 0 {
		h.asking = true
		go b.findKeepers(heard, ask, lost, unclaimed)
	}
}

// giveHeirs gives jobs heirs. It returns which members are gone.
func (b *Buyer) giveHeirs(now time.Time) (gone func(cluster.WorkerID) bool) {
	known := map[cluster.WorkerID]bool{}
	gone = func(id cluster.WorkerID) bool {
		is, asked := known[id]
		if !asked {
			is = b.heirs.members.Gone(id)
			known[id] = is
		}
		return is
	}
	b.dispatcher.Heirs(now, b.heirs.members.Heirs(), gone)
	return gone
}

// askNewlyHeard asks the members that were not heard before whether they have taken over jobs of this one.
func (b *Buyer) askNewlyHeard(heard []cluster.WorkerID) {
	h, before := b.heirs, b.heirs.heard
	h.heard = make(map[cluster.WorkerID]bool, len(heard))
	var ids []string
	for _, id := range heard {
		if h.heard[id] = true; before[id] {
			continue
		}
		b.dispatcher.ProbeHeir(id)
		if ids == nil {
			ids = b.dispatcher.Disputable()
		}
		if started := !h.greeted[id]; started || len(ids) > 0 {
			go b.askDisputes(id, ids, started)
		}
	}
}

func (b *Buyer) askDisputes(id cluster.WorkerID, ids []string, started bool) {
	ctx, cancel := context.WithTimeout(b.run, claimTime)
	defer cancel()
	claims, err := b.heirs.members.Claims(ctx, id, ids, started)
	if keepsNone(err) {
		err = nil
	}
	b.postFunc(func(now time.Time) {
		if b.heirs.greeted[id] = b.heirs.greeted[id] || err == nil; err != nil {
			delete(b.heirs.heard, id) // it is asked again
		}
		if send := b.heirs.HearClaims(now, id, claims); len(send) > 0 {
			go b.sendClaims(id, send)
		}
	})
}

// sendClaims has a member find that this one has taken over jobs which it still keeps.
func (b *Buyer) sendClaims(id cluster.WorkerID, list []jobs.Copy) {
	ctx, cancel := context.WithTimeout(b.run, copyTime)
	defer cancel()
	answers, err := b.heirs.members.Copy(ctx, id, list)
	b.postFunc(func(now time.Time) {
		if err != nil {
			delete(b.heirs.heard, id) // it is asked again
		}
		for _, a := range answers {
			if a.Rival != nil { // its claim has grown since
				b.heirs.HearClaims(now, id, []jobs.Claim{*a.Rival})
			}
		}
	})
}

// findKeepers asks who keeps jobs: the keepers of copies whether these are up to date, and, where the keeper is gone, all
// members whether they have taken over the job. If none has, this one does.
func (b *Buyer) findKeepers(heard []cluster.WorkerID, ask map[cluster.WorkerID][]string, lost, unclaimed []string) {
	h := b.heirs
	type answer struct {
		keeper cluster.WorkerID
		claims []jobs.Claim
	}
	var confirmed []answer
	var mu sync.Mutex
	var all sync.WaitGroup
	for keeper, ids := range ask { // side by side, since takeovers wait for the answers
		all.Go(func() {
			ctx, cancel := context.WithTimeout(b.run, claimTime)
			defer cancel()
			if claims, err := h.members.Claims(ctx, keeper, ids, false); err == nil {
				mu.Lock()
				defer mu.Unlock()
				confirmed = append(confirmed, answer{keeper, claims})
			}
		})
	}
	all.Wait()
	claims, silent := b.askAll(heard, slices.Concat(unclaimed, lost))
	b.postFunc(func(now time.Time) {
		h.asking = false
		for _, a := range confirmed {
			h.Confirm(now, a.keeper, ask[a.keeper], a.claims)
		}
		h.TakeOver(now, lost, claims, silent)
		for _, id := range unclaimed {
			h.Reclaim(now, id, claims, silent)
		}
	})
}

// askAll asks all members for their claims about jobs; silent: not all have answered.
func (b *Buyer) askAll(heard []cluster.WorkerID, ids []string) (claims []jobs.Claim, silent bool) {
	if len(ids) == 0 {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(b.run, claimTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, id := range heard {
		wg.Go(func() {
			list, err := b.heirs.members.Claims(ctx, id, ids, false)
			mu.Lock()
			defer mu.Unlock()
			claims, silent = append(claims, list...), silent || err != nil
		})
	}
	wg.Wait()
	return claims, silent
}

// renewWorkers connects all workers anew, so that they hear which jobs were taken over and say which tasks run.
func (b *Buyer) renewWorkers() {
	b.connsMu.Lock()
	defer b.connsMu.Unlock()
	for id, c := range b.conns {
		if near, is := c.(*LocalConn); !is {
			b.o.Peers.Disconnect(id)
		} else {
			go func() { _ = b.Attach(b.run, near) }() // a local runner refuses nobody
		}
	}
}
