package batch

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/share"
)

// What accounts have used is written, and told to buyers, this often.
const (
	writeSharesEvery = time.Minute
	sharesEvery      = 10 * time.Second
)

// Budgets sets the price that tasks count by in shares, and the weights of namespaces.
func (r *Runner) Budgets(b quota.Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots.SetShares(b.Price, b.Weights)
}

// adopted is a task that runs since before this process, and its terms.
type adopted struct {
	task  *task
	terms *jobs.Terms
}

// describeAdopted tells the worker what a task is of which it knew only the room, and counts it for its account.
func (r *Runner) describeAdopted(a adopted) {
	rec, err := r.host.Record(r.ctx)
	r.mu.Lock()
	if err == nil && r.tasks[a.task.life.String()] == a.task {
		r.slots.Own(time.Now(), a.task.slot, a.terms, a.task.life, a.task.began, &rec)
	}
	told := taskOf(a.task.life, a.terms)
	told.Since = a.task.began
	r.mu.Unlock()
	_ = r.host.AdoptTask(r.ctx, told) // fails only when the worker ends
}

// readShares takes back what accounts had used, as far as a file says so.
func (r *Runner) readShares(now time.Time) {
	if r.o.SharesFile == "" {
		return
	}
	var saved share.Saved
	raw, err := os.ReadFile(r.o.SharesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(raw, &saved)
	}
	if err != nil {
		r.log.Warn("what users and namespaces have used is not known any more; all begin anew", "err", err)
		return
	}
	r.slots.RestoreShares(now, saved)
}

// keepShares writes what accounts have used, now and then.
func (r *Runner) keepShares(now time.Time) {
	if now.Sub(r.wroteShares) >= writeSharesEvery {
		r.wroteShares = now
		r.writeShares(now)
	}
}

// writeShares writes what accounts have used. It is not fsynced: at worst a host that goes down forgets it.
func (r *Runner) writeShares(now time.Time) {
	if r.o.SharesFile == "" {
		return
	}
	r.mu.Lock()
	saved := r.slots.SaveShares(now)
	r.mu.Unlock()
	next := r.o.SharesFile + ".new"
	raw, err := json.Marshal(saved)
	if err == nil {
		err = os.WriteFile(next, raw, 0o600)
	}
	if err == nil {
		err = os.Rename(next, r.o.SharesFile)
	}
	if err != nil {
		r.log.Warn("what users and namespaces have used could not be written; a restart would forget it", "err", err)
	}
}
