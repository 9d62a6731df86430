package jobs

// NumQueues returns how many queues of shapes a dispatcher has.
// KeepFinished sets how many finished jobs are kept.
func (d *Dispatcher) KeepFinished(n int) { d.maxKept = n }

func (d *Dispatcher) NumQueues() int { return len(d.queues) }
