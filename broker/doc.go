// Package broker buys machines: it is the buyer's half of the market, with goroutines, time and the calls to workers.
//
// Place is the only way to a new machine. A create, a gang, a grant at a worker that an outside scheduler chose (a bid)
// and the successor of a machine that moves are Intents, and each takes the same steps in the same order:
//
//	app       it exists and takes new machines
//	key       a repeated create finds the first one's machine
//	name      no other machine has it, or is about to get it
//	request   the launch with the eviction budget of its app, resolved once: regions, volumes, secrets
//	funds     what its namespace may spend; this sets the terms it runs on
//	policy    the one that ranks the workers
//	strategy  how the workers are asked: direct, race, shared, batching, fair-share; gang and bid follow from the intent
//	record    what was seen, asked and answered goes to the decision log
//	app       it is still there; else what was made is destroyed
//
// A Strategy is stepped by a pure buyer of package market and carries out what that buyer asks. It holds no
// authoritative state: the view may be stale, and each worker judges for itself. Plan and DrainPlan take the same steps
// up to the strategy, and leave nothing behind at any worker.
//
// A Broker owns every goroutine that it starts: Close waits for them.
package broker
