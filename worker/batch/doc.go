// Package batch runs package jobs live: a Buyer with a journal and the tasks' output beside a gateway, and a Runner
// beside each worker, which pulls tasks and runs them with the worker's own runtime and out of its ledger.
//
// # The path of a task
//
// The buyer bids; a free slot is offered to the best bid; its buyer grants a task; the runner takes the room from the
// ledger, accepts, and starts the life with one call of the runtime. At its exit the room and the slot are free at
// once: the next offer does not wait until the output is read or the result is recorded. Results go to the buyer,
// whose journal commits all that arrived while it was busy at once; then the buyer confirms them, and the worker has
// the runtime forget them. A worker writes nothing to its own journal for a task: a life's name says all that it must
// know after a crash. See docs/decisions/0013-array-jobs.md.
//
// The tasks of a job that names a scheduler take another way to their grant: see schedulers and package shell. They may
// wait at a worker for room, and a new connection voids their grants, too.
//
// # When somebody dies
//
// Without its buyer, a runner keeps its tasks running and keeps each result until that buyer connects, for a day, or
// until the buyer's member is removed. A buyer with
// maxHeld results that it has not recorded gets no offers. Nothing of the auction queues at a worker, so only grants that
// are not answered yet are returned, which a new connection voids. A task of a runner that is not heard of for GoneAfter is
// given to another worker, with a larger attempt.
package batch
