// Package auction is how short tasks find workers late. A buyer keeps the unstarted tasks of its jobs in a TaskQueue;
// a free worker sends its offer to one buyer. That buyer grants the task of the best bid it knows: its own, or another
// buyer's, to which it forwards the offer. Nothing queues at workers.
//
// Time is whole microseconds, and only its differences matter.
package auction
