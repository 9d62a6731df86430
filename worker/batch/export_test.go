package batch

// Waited counts the jobs that somebody is said to wait for.
func (b *Buyer) Waited() int {
	b.changes.mu.Lock()
	defer b.changes.mu.Unlock()
	return len(b.changes.of)
}

// FindPlacesAgain looks up the users in bids now.
func (r *Runner) FindPlacesAgain() { r.findPlacesAgain() }

// NumWaiting returns how many tasks of schedulers wait for room.
func (r *Runner) NumWaiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}
