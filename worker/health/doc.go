// Package health makes the health checks of machines: a Checker keeps when each is due, and asks.
//
// What is to be checked comes from the worker (Set, Forget), what a check says goes back to it (Options.Report).
// A check that waits is an entry of a heap; only one that asks is a goroutine, and of those there are at most maxAsks,
// and maxAppAsks of one app, so that an app whose checks hang delays its own.
//
// A check asks the machine's own address and nothing else: redirects are not followed, and nothing that the machine
// answers is. Of an answer at most maxAnswer bytes are read, and maxBody shown.
package health
