package flow

// Begin takes a task out of the network that has a place and has begun there, for who does not move tasks that run: its
// slot is taken until End, and others see it beside them. It gives the worker.
func (n *Network) Begin(i int) (w int, err error) {
	if i < 0 || i >= len(n.tasks) || !n.tasks[i].live || n.tasks[i].on < 0 {
		return -1, invalidArgument("There is no task %d that has a place.", i)
	}
	w, class := n.tasks[i].on, n.tasks[i].Class
	if err := n.RemoveTask(i); err != nil {
		return -1, err
	}
	n.countBeside(w, class, 1)
	return w, n.takeSlot(w, 1)
}

// End gives a slot back that a task of a class had from Begin.
func (n *Network) End(w int, class Class) error {
	if w < 0 || w >= len(n.workers) || n.workers[w].inUse == 0 {
		return invalidArgument("No task has begun on a worker %d.", w)
	}
	n.countBeside(w, class, -1)
	return n.takeSlot(w, -1)
}

// countBeside counts a task of a class among those of a worker.
func (n *Network) countBeside(w int, class Class, by int) {
	n.workers[w].running[class] += by
	n.workers[w].stale = true
}

// takeSlot closes a slot of a worker, or opens it: under LoadSpreading the cheapest that is open, or the dearest that is
// not.
func (n *Network) takeSlot(w, by int) error {
	k := &n.workers[w]
	k.inUse += by
	if n.model == LoadSpreading {
		slot, open := k.inUse-1, int64(0)
		if by < 0 {
			slot, open = k.inUse, 1
		}
		if err := n.graph.SetUpper(k.each[slot], open); err != nil {
			return err
		}
	}
	return n.graph.SetUpper(k.out, int64(k.slots-k.inUse))
}
