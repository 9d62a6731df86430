// Package rollout decides what becomes of a service: so many machines of each of its groups, kept, changed and undone.
// It is pure; package services carries out what it decides.
//
// What is wanted is a Release, which never changes and is named by its hash, and a Head, which says the release and how
// many machines of each group are wanted now. Any member may write a head; it names its parent, so two that were written
// without knowing of each other show as a fork. A Slot is a replica of a group. Its machine's id follows from the slot,
// an epoch and the steward, so what one steward asks for twice is one machine, and what two ask for is two.
//
// A Steward carries one service for one member: give Step what is wanted and what stands, and it says what to do next. It
// remembers what failed and how long it waits, which machines were healthy and which it put to sleep; the next steward
// begins without that, and reads from the machines all that it needs to go on. Values flow one way through a step:
//
//	what is wanted, what stands, what is remembered -> look -> survey of each group -> todo of each stage -> docket -> Next
//
// A look says what stands and by which release each slot is to be; a survey finds what the slots have (view.does); stages say
// what is to be done; the docket alone makes orders of it, in the steward's term, and says whether more is left to do. Foresee
// says beforehand what a steward will do for a head: it reads that off the same look and the same surveys.
//
// See docs/decisions/0069-services.md.
package rollout
