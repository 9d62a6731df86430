// Package backfill decides when rigid jobs start: jobs that need all of their resources at once, from start to end, such
// as gangs and large tasks. It has three policies over one queue: first come, first served; EASY backfill (Lifka, "The
// ANL/IBM SP scheduling system", JSSPP 1995), in which a job may start before those in front of it if it does not delay
// the first; and conservative backfill (Mu'alem and Feitelson, "Utilization, predictability, workloads, and user
// runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001), in which it may delay none.
//
// A Planner keeps the queue, what runs and, under conservative backfill, a Profile: the free capacity at each future
// time. Its caller reports what happens (Submit, End, Cancel, Resize), asks at each such moment, and at the time that
// Wake names, which jobs start now (Start), and carries that out. What happens at one moment is reported before Start
// is asked, ends and arrivals in any order: what ended is free for what arrived.
//
// Times and estimates are whole numbers in a unit of the caller's, from 0 on. Resources are vectors whose dimensions
// the caller chooses, and one pool: that the capacity is spread over workers, and a gang of large members may not fit
// there, is the caller's to judge.
//
// Estimates:
//   - A job without an estimate has the one that NewPlanner was given for such jobs.
//   - A job that ends early frees its resources at once. Under conservative backfill the reservations are then
//     compressed: each job in the order of the queue moves to the earliest time that the others leave it, which is
//     never later than before.
//   - A job that has run for longer than its estimate is expected to end one unit from now, whenever now is. Nothing is
//     evicted for it. Under conservative backfill the reservations that it stands in the way of move later: all are
//     made again, in the order of the queue. So they are if Start is asked later than Wake named.
//
// A reservation is a promise: no job starts later than at the time first expected, as long as no job exceeds its
// estimate, the capacity does not shrink and Start is asked in time. A job that needs more than the whole capacity is
// refused.
package backfill
