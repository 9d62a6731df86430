package jobs

// NumQueues returns how many queues of shapes a dispatcher has.
func (d *Dispatcher) NumQueues() int { return len(d.queues) }
