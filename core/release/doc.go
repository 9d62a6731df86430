// Package release has the nouns of services: what is wanted of one, what stands of it, and what its steward has written.
// They are values that go over the API, between members and to disk; package rollout decides by them what to do.
//
// What is wanted is a Release, which never changes and is named by its hash, and a Head, which says the release and how
// many machines of each Group are wanted now. Any member may write a head, by a Change of the Service; it names its
// parent, so two that were written without knowing of each other show as a fork. A Slot is a replica of a group. Its
// machine's id follows from the slot, an epoch and the steward, so what one steward asks for twice is one machine, and what
// two ask for is two.
//
// A Standing is a machine as the fleet knows it. A Tenure is what the service's steward has written: its term, how far the
// rollout is (Progress), which machines are held, and what its groups and jobs chose.
//
// See docs/decisions/0069-services.md.
package release
