package jobs

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// Standing is what the parties of a job's scheduler say of its waiting tasks.
type Standing struct {
	Scheduler string `json:"scheduler,omitempty"` // "": the auction, which Job.Why and Job.Queue are about
	Said      []Said `json:"said"`
	// Silent are the members that did not answer in time.
	Silent []cluster.WorkerID `json:"silent,omitempty"`
}

// Said is what one party says, in the words of its architecture: see scheduler.Explainer.
type Said struct {
	Member cluster.WorkerID `json:"member"`
	Role   string           `json:"role"` // worker, buyer or center
	Text   string           `json:"text"`
}

// SaidBy returns what the parties of a member say, as Standing has it.
func SaidBy(member cluster.WorkerID, list []shell.Said) (out []Said) {
	for _, s := range list {
		out = append(out, Said{member, RoleName(s.Role), s.Text})
	}
	return out
}

// RoleName returns the name of a party's role.
func RoleName(r scheduler.Role) string {
	switch r {
	case scheduler.Worker:
		return "worker"
	case scheduler.Buyer:
		return "buyer"
	}
	return "center"
}

// maxAsked bounds the batches of a job that are asked about at once.
const maxAsked = 8

// BatchesOf returns the batches of a job, by id or name, that have waiting tasks: a token of each, the oldest first.
func (d *Dispatcher) BatchesOf(ref string) (scheduler string, list []shell.Token, err error) {
	j := d.jobNamed(ref)
	if j == nil {
		return "", nil, noJob(ref)
	}
	for key, b := range d.handed.batches {
		if b.job == j && b.left > 0 {
			list = append(list, shell.Token{Lane: key.Lane, Generation: key.Number, Batch: key.batch})
		}
	}
	slices.SortFunc(list, func(a, b shell.Token) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Batch, b.Batch))
	})
	return j.spec.Scheduler, list[:min(len(list), maxAsked)], nil
}
