// Package release has the nouns of services: what is wanted of one, which machines it has, and what its steward has
// written. They are values for the API, between members and on disk; package rollout decides from them what to do.
//
// What is wanted is a Release, which never changes and is named by its hash, and a Head, which says the release and
// how many machines of each Group are wanted now. Any member may write a head, by a Change of the Service; it names
// its parent, so two heads that were written independently show as a fork. A Slot is a replica of a group. Its
// machine's id follows from the slot, an epoch and the steward, so a steward that asks twice gets one machine, and two
// stewards get two.
//
// A Standing is a machine as the fleet knows it. A Tenure is what the service's steward has written: its term, how far
// the rollout is (Progress), which machines are held, and what its groups and jobs chose.
//
// See docs/decisions/0069-services.md.
package release
