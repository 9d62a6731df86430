package find

import (
	"sync"

	"github.com/soukhq/souk/cluster"
)

// askedAtOnce bounds how many workers a request asks side by side.
const askedAtOnce = 64

// AskAll asks workers side by side and returns the answers in the workers' order. Errors are at the same indexes.
func AskAll[W, T any](workers []W, ask func(W) (T, error)) ([]T, []error) {
	return AskSome(askedAtOnce, workers, ask)
}

// AskSome is AskAll with at most most concurrent calls.
func AskSome[W, T any](most int, workers []W, ask func(W) (T, error)) ([]T, []error) {
	out, errs := make([]T, len(workers)), make([]error, len(workers))
	if len(workers) == 1 {
		out[0], errs[0] = ask(workers[0])
		return out, errs
	}
	var all sync.WaitGroup
	free := make(chan struct{}, max(1, most))
	for i, w := range workers {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			out[i], errs[i] = ask(w)
		})
	}
	all.Wait()
	return out, errs
}

// gatherLists asks workers for lists and joins them. For a worker that does not answer, or may not answer this member,
// it uses what is known and also returns the worker: a list that silently lacks entries would make them look gone. Any
// other error fails the whole call.
func gatherLists[T any](d *Directory, workers []Worker, ask func(Worker) ([]T, error),
	known func(cluster.WorkerID) []T) (all []T, silent []Unanswered, err error) {
	lists, errs := AskAll(workers, ask)
	all = []T{}
	for i, l := range lists {
		id := workers[i].ID()
		d.Contact.Called(id, !NoAnswer(errs[i]))
		switch {
		case NoAnswer(errs[i]), mayNotAsk(errs[i]):
			silent = append(silent, Unanswered{id, errs[i]})
			l = known(id)
		case errs[i] != nil:
			return nil, nil, errs[i]
		}
		all = append(all, l...)
	}
	return all, silent, nil
}
