// Package gossip keeps a registry the same on every member of a cluster. hashicorp/memberlist is the carrier: it finds
// members, notices which are gone, and moves packets. What the packets say, and what of it is believed, is decided by
// package registry.
//
// Three ways lead to one state, from fast to certain:
//
//   - What a worker changes is coalesced for some milliseconds and goes to all others along a tree, once to each: see
//     package broadcast.
//   - Every answer to a probe carries the hash of the answerer's registry. When it is not ours, and does not become ours
//     at once, we pull the difference from it.
//   - At long intervals members pull from each other anyway.
//
// A change that was lost on the first way is so found on the second, within about a probe interval, at 8 bytes a probe.
//
// What probes need has locks of its own, held for work in memory alone: neither the disk nor a signature delays an
// answer.
//
// Nothing here is asked before a worker acts. A Cluster that knows nobody answers for itself.
package gossip
