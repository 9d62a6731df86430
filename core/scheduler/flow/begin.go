package flow

// Begin removes a placed task that has started from the network, for schedulers that do not move running tasks: its
// slot is taken until End, and others see it as a neighbour. It returns the worker.
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

// End frees a slot that a task of a class had from Begin.
func (n *Network) End(w int, class Class) error {
	if w < 0 || w >= len(n.workers) || n.workers[w].inUse == 0 {
		return invalidArgument("No task has begun on a worker %d.", w)
	}
	n.countBeside(w, class, -1)
	return n.takeSlot(w, -1)
}

// Occupy takes a slot of a worker for something that is not in the network, until Vacate.
func (n *Network) Occupy(w int) error {
	if w < 0 || w >= len(n.workers) || n.workers[w].inUse == n.workers[w].slots {
		return invalidArgument("No slot is free on a worker %d.", w)
	}
	return n.takeSlot(w, 1)
}

// Vacate frees a slot that Occupy took.
func (n *Network) Vacate(w int) error {
	if w < 0 || w >= len(n.workers) || n.workers[w].inUse == 0 {
		return invalidArgument("No slot is in use on a worker %d.", w)
	}
	return n.takeSlot(w, -1)
}

// countBeside adds by to the number of a class's tasks on a worker.
func (n *Network) countBeside(w int, class Class, by int) {
	n.workers[w].running[class] += by
	n.workers[w].stale = true
}

// takeSlot closes a slot of a worker, or opens one (by < 0): under LoadSpreading the cheapest open one, or the most
// expensive closed one.
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
