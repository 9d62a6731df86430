package jobs

import (
	"encoding/json"

	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// What tasks used is accounted to the owner of their job, by day. While a job is kept, its account follows from the
// results in its journal, so that recording a result writes nothing more; when it is purged, its account is added to
// the ledger, with the batch that removes it. So each result counts once, whatever crashes.
//
// A member that takes a job over counts it by its copy; the member that kept it stops counting it when it learns of
// that. So it counts once again, too, once both have heard of each other.

// accountBucket has the entries of the ledger.
const accountBucket = "account" // key: Change.Name

// account is what the attempts of a job used, by the day on which they ended.
type account struct {
	Days  accounts.Days `json:"days,omitempty"`
	First int64         `json:"first,omitempty"` // when the first attempt began, in unix microseconds; 0: not known
}

// addResult accounts for one attempt, n times: -1 takes it back.
func (a *account) addResult(j *job, r *Result, n int64) {
	took, shape := r.ranFor(), &j.terms.Shape
	s := accounts.Sums{Attempts: 1, CoreUS: shape.CPU * took / 1000, MiBMS: shape.Memory * (took / 1000),
		GPUUS: int64(j.spec.GPUs) * took, CPUUS: r.UsedCPU}
	switch {
	case r.Retry:
	case r.Dropped:
		s.Cancelled = 1
	case r.isSuccess():
		s.Succeeded = 1
	default:
		s.Failed = 1
	}
	// a worker whose clock is wrong may say anything
	a.Days.On(accounts.DayOfMicro(max(r.Ended, j.submitted.UnixMicro()))).Add(&s, n)
	if n > 0 && r.Began > 0 && (a.First == 0 || r.Began < a.First) {
		a.First = r.Began
	}
}

// addUsed counts one attempt that has ended.
func (j *job) addUsed(r *Result) {
	j.used.addResult(r)
	j.account.addResult(j, r, 1)
}

// without returns an account without these results: what attempts used whose results are not kept. nil: nothing.
func (a *account) without(j *job, lists ...[]Result) *account {
	rest := account{Days: a.Days.Clone(), First: a.First}
	for _, list := range lists {
		for i := range list {
			rest.addResult(j, &list[i], -1)
		}
	}
	if rest.Days = rest.Days.Clone(); len(rest.Days) == 0 {
		return nil
	}
	return &rest
}

// addSpent adds what attempts used whose results are not kept.
func (a *account) addSpent(o *account) {
	if o == nil {
		return
	}
	a.Days.Add(o.Days, 1)
	if o.First > 0 && (a.First == 0 || o.First < a.First) {
		a.First = o.First
	}
}

// accountDays returns what a job adds to its owner's entries.
func (j *job) accountDays() accounts.Days {
	out := j.account.Days.Clone()
	on := out.On(accounts.DayOf(j.submitted))
	on.Jobs++
	if j.account.First > 0 {
		on.Waited++
		on.WaitedUS += max(0, j.account.First-j.submitted.UnixMicro())
	}
	if j.isOver() && !j.ended.IsZero() { // those that were cancelled before they ran have no result
		left := int64(j.counts[cancelled])
		for i := range j.account.Days {
			left -= j.account.Days[i].Cancelled
		}
		out.On(accounts.DayOf(j.ended)).Cancelled += left
	}
	return out
}

// accountKey returns the key of a job's entries, but for the day.
func (j *job) accountKey() accounts.Key {
	k := accounts.Key{Namespace: j.spec.Namespace, Owner: j.spec.Owner.Name()}
	if u := j.spec.Owner.User; u != nil {
		k.Unix, k.UID = true, u.UID
	}
	return k
}

// closeAccount adds a job that is purged to the ledger.
func (d *Dispatcher) closeAccount(j *job) {
	k := j.accountKey()
	for _, day := range j.accountDays() {
		k.Day = day.Day
		d.ledger.Add(k, &day.Sums)
	}
}

// ledgerRecords returns the entries of the ledger that have changed.
func (d *Dispatcher) ledgerRecords() (out []fsm.Record, err error) {
	for _, c := range d.ledger.Changes() {
		r := fsm.Record{Bucket: accountBucket, Key: c.Name}
		if c.Entry != nil {
			if r.Value, err = json.Marshal(c.Entry); err != nil {
				return nil, fault.Wrap(err, fault.Internal, fault.CodeJournal, "an account cannot be written as JSON")
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// Accounts returns what each owner's tasks did and used from a day on, as far as this member counts them: those of the
// jobs that it keeps, and of those that it has kept until they were purged.
func (d *Dispatcher) Accounts(since accounts.Day) []accounts.Entry {
	t := accounts.Total{}
	d.ledger.AddTo(t, since)
	for _, j := range d.order {
		if j.rival != nil {
			continue // another member counts it
		}
		k := j.accountKey()
		for _, day := range j.accountDays() {
			if k.Day = day.Day; k.Day >= since {
				t.Add(k, &day.Sums)
			}
		}
	}
	return t.Entries()
}
