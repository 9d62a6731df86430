// Package accounts keeps what the tasks of each owner used, day by day, for accounting. It is pure.
//
// # Vocabulary
//
// A *ledger* has one *entry* for each owner in a namespace on a day: its *sums*. Days are of UTC. An attempt of a task
// counts as a whole on the day on which it ended, a job on the day on which it was submitted.
//
// All sums are whole numbers, so that adding and subtracting them in any order gives the same.
package accounts
