// Package share keeps fair shares of one worker between those whose tasks run there: what each account has used,
// decayed, and whose tasks go first. It is pure: now is an argument, and nothing is stored.
//
// # What an account has used
//
// An *account* is a namespace and an owner in it. Its *use* is in worker-hours: a task that occupies a quarter of the
// worker (Worth) for two hours is half a worker-hour. Use decays with a half-life of HalfLife, as Slurm's
// (PriorityDecayHalfLife), so that what somebody used last month is forgotten. A task counts while it runs.
//
// # Who goes first
//
// Of those with tasks that wait, each is due a share: a namespace in proportion to its weight, an owner as much as any
// other of its namespace. Its *standing* is its use over its share of the use of all of them: 1 if it has had what it is
// due. Those with less go first, namespace before owner. Standings are compared in coarse levels (levelOf): within a
// level the order is the auction's, which serves all better on average, and so nothing changes with one account, or
// with accounts that use about as much.
//
// Level 0, "as much as is due", is as narrow as tolerance. Were it as wide as the others, the account whose tasks the
// auction prefers would have twice the room of another for ever. As it is, accounts that always have tasks waiting come
// to within tolerance of their shares: one above goes behind all others until decay has brought it back.
//
// What an account occupies right now counts as well, as much as a tenth of all use (holdWeight). Else the first of two
// would fill the whole worker with tasks of ten hours before any of it has been used.
package share
