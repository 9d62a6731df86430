package batch

import (
	"slices"

	"github.com/soukhq/souk/core/jobs"
)

// addOutputs adds to copies what the tasks wrote, as far as it is here.
func (b *Buyer) addOutputs(list []jobs.Copy) {
	for k := range list {
		x := &list[k]
		var outputs [][]byte
		any := false
		x.EachResult(func(_ int, r *jobs.Result) {
			out := b.files.rawOutput(r, x.Job)
			outputs, any = append(outputs, out), any || len(out) > 0
		})
		if any {
			x.Outputs, x.Namespace = outputs, b.files.namespaceOf(x.Job)
		}
	}
}

// keepOutputs keeps what came with a copy.
func (b *Buyer) keepOutputs(x *jobs.Copy) {
	if len(x.Outputs) == 0 || !x.Merge && b.dispatcher.ClaimOf(b.o.Member, x.Job) != nil {
		return
	}
	b.files.addJob(x.Job, x.Namespace, 0)
	x.EachResult(func(i int, r *jobs.Result) {
		if i >= len(x.Outputs) || len(x.Outputs[i]) == 0 {
			return
		}
		r.Offset, r.Bytes, r.Cut = b.files.keepOutput(x.Job, x.Outputs[i], r.Cut)
		r.OutputAt = b.o.Member
	})
}

// purgeOutputs removes the output of those of these jobs that are neither kept nor copied here any more.
func (b *Buyer) purgeOutputs(ids []string) {
	b.files.purgeJobs(slices.DeleteFunc(ids, func(id string) bool {
		copied := false
		if b.heirs != nil {
			copied, _ = b.heirs.Copies.Has(id)
		}
		return copied || b.dispatcher.IDOf(id) == id
	}))
}
