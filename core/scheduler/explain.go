package scheduler

import "fmt"

// Explainer is a Strategy whose parties say where the waiting tasks of a job are.
type Explainer interface {
	// Explain says, in the architecture's words, what Self knows of a job's tasks that have not begun, without a capital
	// or a dot, such as "2 reservations, the first behind 3 others"; "": nothing. It changes nothing and sends nothing.
	Explain(d *Env, job int32) string
}

// Count returns a number with its noun, in the singular or the plural.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Behind describes a job's place in a queue. mine is what it has there, with a noun; before others go first.
func Behind(mine string, before int) string {
	if before == 0 {
		return mine + ", the first is next"
	}
	return fmt.Sprintf("%s, the first behind %s", mine, Count(before, "other", "others"))
}

// LeftOf returns how many tasks a job has in a list of jobs with tasks left, and how many of others come before it. at
// returns the i-th of n: the job, and its tasks. A job may be there more than once; mine 0: it is not.
func LeftOf(job int32, n int, at func(i int) (job, tasks int32)) (mine, before int) {
	for i := range n {
		if x, tasks := at(i); x == job {
			mine += int(tasks)
		} else if mine == 0 {
			before += int(tasks)
		}
	}
	return mine, before
}

// QueuePlace describes the tasks of a job in a queue of tasks; "": it has none there. isOf reports whether the i-th task
// of n is the job's.
func QueuePlace(n int, isOf func(i int) bool) string {
	mine, first := 0, 0
	for i := range n {
		if isOf(i) {
			if mine++; mine == 1 {
				first = i
			}
		}
	}
	if mine == 0 {
		return ""
	}
	return Behind(Count(mine, "task in the queue", "tasks in the queue"), first)
}
