// Package rollout decides what to do for a service: it keeps, changes and restores the machines of each of its groups.
// It is pure; package services carries out what it decides.
//
// What is wanted and what stands are values of package release. A Steward runs one service for one member: its Step
// takes both and returns what to do next. It remembers what failed and how long it waits, which machines were healthy
// and which it put to sleep; the next steward starts without that memory, and reads all that it needs from the
// machines. Values flow one way through a step:
//
//	what is wanted, what stands, what is remembered -> look -> survey of each group -> todo of each stage -> docket -> Next
//
// A look holds the machines and the release that each slot is to have; a survey finds what the slots have (view.does);
// stages return what is to be done; only the docket makes orders of it, in the steward's term, and reports whether
// more is left to do. Foresee predicts what a steward will do for a head, from the same look and surveys.
//
// See docs/decisions/0069-services.md.
package rollout
