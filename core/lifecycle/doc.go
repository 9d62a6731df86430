// Package lifecycle holds the life of machines and volumes on one worker as durable operations: create, start, stop,
// restart, suspend, signal, update and destroy, with leases, restart policies and schedules.
//
// A Supervisor is the worker's whole state as a pure state machine: the ledger (market.Seller), the machines, and the
// runs that change them (fsm.Engine). Commands, results of effects, exits and ticks go in with the time; an Out comes
// out: records to commit, effects to carry out, replies to send. It does no I/O, so it runs the same under a worker's
// loop and in a simulator, and a test can stop it after any write and start it again.
//
// The owner's duty, in this order, for each Out: commit Records (now when Sync, else no later than with the next Sync
// one); then Cancels, Effects (those marked Durable only when nothing is left to commit), Replies and Changed. Effects
// of one key are carried out one after the other. Those marked Ahead may go before the records are durable, once they
// survive a kill -9, if the owner can tell afterwards whether the host has rebooted (Recover).
package lifecycle
