package node

import (
	"context"
	"time"
)

const (
	apartEvery = 200 * time.Millisecond // how often the silence of other members is checked
	apartLeast = time.Second            // shorter silence is not reported: no machine stops for it
)

// tellApart tells the workers how long no other member has been heard, until ctx ends.
func (n *Node) tellApart(ctx context.Context) {
	every := time.NewTicker(apartEvery)
	defer every.Stop()
	told := time.Duration(0)
	for {
		silent := n.o.Member.Apart()
		if silent < apartLeast {
			silent = 0
		}
		if silent > 0 || told > 0 {
			told = silent
			for _, w := range n.workers {
				if err := w.Apart(ctx, silent); err != nil && ctx.Err() == nil {
					n.o.Log.Error("a worker cannot heed that no other member is heard", "worker", w.ID(), "err", err)
					told = max(told, 1) // not 0, so that the end of the silence is reported, too
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
