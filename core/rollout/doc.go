// Package rollout decides what becomes of a service: so many machines of each of its groups, kept, changed and undone.
// It is pure; package services carries out what it decides.
//
// What is wanted and what stands are values of package release. A Steward carries one service for one member: give Step
// both, and it says what to do next. It remembers what failed and how long it waits, which machines were healthy and which
// it put to sleep; the next steward begins without that, and reads from the machines all that it needs to go on. Values
// flow one way through a step:
//
//	what is wanted, what stands, what is remembered -> look -> survey of each group -> todo of each stage -> docket -> Next
//
// A look says what stands and by which release each slot is to be; a survey finds what the slots have (view.does); stages say
// what is to be done; the docket alone makes orders of it, in the steward's term, and says whether more is left to do. Foresee
// says beforehand what a steward will do for a head: it reads that off the same look and the same surveys.
//
// See docs/decisions/0069-services.md.
package rollout
