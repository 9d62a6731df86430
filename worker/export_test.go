package worker

// DropRenderings drops the JSON of all machines, as a minute without a list does.
func (w *Worker) DropRenderings() {
	w.loop.view.listed.Store(false)
	w.loop.view.dropRenderings()
}
