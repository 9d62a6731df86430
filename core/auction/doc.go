// Package auction is how short tasks find workers late. A buyer keeps the unstarted tasks of its jobs in a TaskQueue;
// a worker that is free asks one buyer, which grants it the task of the best bid that it knows: its own, or, by
// sending the worker's offer on, another buyer's. Nothing queues at workers.
//
// Time is whole microseconds, and only its differences matter.
package auction
