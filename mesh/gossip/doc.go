// Package gossip keeps a registry the same on every member of a cluster. It uses hashicorp/memberlist to find members,
// to notice which are gone, and to move packets. Package registry defines the content of the packets and decides which
// of it to believe.
//
// Three ways lead to one state, from fast to certain:
//
//   - A worker's changes are coalesced for some milliseconds and go to all others along a tree, once to each: see
//     package broadcast.
//   - Every answer to a probe carries the hash of the answerer's registry. If it differs from ours, and ours does not
//     catch up at once, we pull the difference from the answerer.
//   - At long intervals members pull from each other anyway.
//
// A change that the first way lost is found by the second within about a probe interval, at a cost of 8 bytes a probe.
//
// The state that probes need has its own locks, held only for work in memory: neither the disk nor a signature delays
// an answer.
//
// No worker waits for gossip before it acts. A Cluster that knows no other member works alone.
package gossip
