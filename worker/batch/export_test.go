package batch

// Waited counts the jobs that somebody is said to wait for.
func (b *Buyer) Waited() int {
	b.changes.mu.Lock()
	defer b.changes.mu.Unlock()
	return len(b.changes.of)
}

// FindPlacesAgain looks up the users in bids now.
func (r *Runner) FindPlacesAgain() { r.findPlacesAgain() }
