package market

import (
	"fmt"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// MaxListed is how many workers a machine's own record lists, best first. The decision log keeps enough to explain a
// larger fleet.
const MaxListed = 64

// Placement describes the decision so far: the worker asked last, why, and the scores of the view's workers.
func (b *Buyer) Placement(worker cluster.WorkerID) *machine.Placement {
	p := b.Purchase()
	return p.Placement(worker)
}

// Placement describes why a purchase goes to a worker, and the scores of the ranked workers.
func (p *Purchase) Placement(worker cluster.WorkerID) *machine.Placement {
	out := &machine.Placement{Policy: p.Policy.Name, Worker: string(worker),
		Candidates: p.Ranked[:min(len(p.Ranked), MaxListed)], Refusals: describeRefusals(p.Asks)}
	out.Reason = p.describeChoice(worker, len(out.Refusals))
	if p.Request.Scheduling.Lent {
		out.Reason += "; lent, for namespace " + p.Request.Namespace +
			" cannot pay for it now: it is the first to be evicted"
	}
	return out
}

// describeRefusals describes which workers refused, and why.
func describeRefusals(asks []Asked) (texts []string) {
	for i := range asks {
		if a := &asks[i]; a.Refusal != nil {
			texts = append(texts, fmt.Sprintf("%s: %s", a.Worker, placement.VerdictText(a.Refusal.Verdict)))
		}
	}
	return texts
}

func (p *Purchase) describeChoice(worker cluster.WorkerID, refused int) string {
	fit := 0
	var won *machine.Candidate
	for i, c := range p.Ranked {
		if c.Fits {
			fit++
		}
		if c.Worker == string(worker) {
			won = &p.Ranked[i]
		}
	}
	switch {
	case won == nil:
		return "chosen by hand"
	case p.Consent != "":
		return p.Consent
	case p.Fleet > 0 && refused == 0:
		return fmt.Sprintf("score %.2f, %s the %d candidates of an index of %d workers", won.Score, p.describeDraw(),
			len(p.Ranked), p.Fleet)
	case len(p.Ranked) == 1:
		return "the only worker, and it has room"
	case fit == 1 && refused == 0:
		return fmt.Sprintf("the only one of %d workers that fits", len(p.Ranked))
	case refused > 0:
		s := "s"
		if refused == 1 {
			s = ""
		}
		return fmt.Sprintf("best score %.2f after %d refusal%s", won.Score, refused, s)
	}
	if n := min(p.Policy.Best, fit); n > 1 {
		return fmt.Sprintf("score %.2f, chosen at random among the best %d of %d workers that fit (of %d)", won.Score,
			n,
			fit, len(p.Ranked))
	}
	return fmt.Sprintf("best score %.2f of %d workers that fit (of %d)", won.Score, fit, len(p.Ranked))
}

// describeDraw says how the first candidate was chosen among equals.
func (p *Purchase) describeDraw() string {
	if p.Policy.Best > 1 {
		return fmt.Sprintf("chosen at random among the best %d of", min(p.Policy.Best, len(p.Ranked)))
	}
	return "the best of"
}
