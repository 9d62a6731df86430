// Package gossip simulates gossip: Propagate runs package registry itself on thousands of members, with pushes,
// repetitions, probes and pulls as the live carrier makes them, and Detect runs a model of memberlist's failure
// detector. Both are repeatable by their seed.
//
// The detector is SWIM (Das, Gupta, Motivala: "SWIM: Scalable Weakly-consistent Infection-style Process Group
// Membership Protocol", DSN 2002, sections 3 and 4) with Lifeguard's changes (Dadgar, Phillips, Currey: "Lifeguard:
// Local Health Awareness for More Accurate Failure Detection", DSN-W 2018, section IV), with memberlist v0.7.0's
// formulas and order of doing things. The model simplifies: packets take no time compared with the timeouts, and a TCP
// probe that loses any of its four packets fails, which is pessimistic.
package gossip
