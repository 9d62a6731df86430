// Package jobs is the buyer of short tasks as a pure state machine: jobs of one task or an array of them, given out
// one by one to workers that pull (auction.TaskQueue, auction.Puller), run at least once, and recorded once each.
//
// # Vocabulary
//
// A *job* has a spec and tasks. A *task* is one command line, known by its job and its index. An *attempt* is one try
// to run it: a number that only grows. A *life* names one attempt and what it occupies, so that a worker that restarts
// after a crash knows from its own runtime what runs on it. A *slot* is a worker's place for one task. A *bulletin* tells
// a worker what a buyer bids for its slots; the worker *offers* each free slot to the best bid that it has room for
// (Slots), and the buyer *grants* it a task (Dispatcher).
//
// # How often a task runs
//
// At least once, until one result is recorded. A result counts when it is in the journal; the worker keeps it until
// then. A task whose result was lost before (a worker that is gone for good, a host without power) is given out again
// with a larger attempt. Only the result of the newest attempt is recorded.
//
// # Who keeps a job
//
// The member where a job was submitted is its *keeper*; another one, its *heir*, has a copy (Copies) of its head and
// results, and takes it over when the keeper is gone. The *epoch* of a job grows each time another member becomes its
// heir or its keeper. Several members may believe to keep a job, as after a cut of the network: their *claims* are
// ordered by epoch and member, and the lower ones hand over what they have and forget the job (Succession). Workers
// obey the highest claim that they know (Keepers). An attempt's number begins with the epoch, so two keepers never
// begin the same attempt.
//
// # The owner's duty
//
// After each call of the Dispatcher: carry out Take's orders at once. Flush's records are committed when the journal
// is free, one commit for all that waits; then Saved is called and its orders are carried out. What Copies returns is
// sent to the heirs, whose answers go to Copied, or NotCopied. A submission is answered once IsSafe, after the Saved of
// the flush behind it.
package jobs
