// Package routing decides which machine of an app serves a request, which one is woken for it, who waits and who is
// refused, and which machines have been idle for so long that they are stopped.
//
// It is pure: the proxy of a member (package proxy) drives it with sockets, the simulator (package sim/wake) with an
// event heap. Its state need not be exact. A Pool is one entry's view of the machines behind one service, from the
// fleet's reports and the requests that the entry itself has sent; the owner of a machine corrects it
// (Pool.Corrected), which costs one hop.
//
//	                 ┌── Send ───► the machine that has the least to do of two (power of two choices:
//	Arrive ─► Pool ──┼── Wake ───► one that is asleep, once for however many wait         Mitzenmacher 2001)
//	                 ├── (held)    until a machine is awake or another request has ended
//	                 └── Refuse ─► with a reason and when to come again
//
// Scaling up and down follows from two numbers of the config, as with Fly's proxy: beyond soft_limit another machine
// is used or woken, beyond hard_limit a request waits. Needed says how many machines a load takes. Requests go to the
// first so many of a region in the order of their ids, which every entry and every owner computes alike, so that the
// others become idle and their owners stop them (Idle) without coordination.
package routing
