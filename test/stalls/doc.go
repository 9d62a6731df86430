// Package stalls stops souk, or the reaper of its worker, in the middle of every verb, and compares the answers with
// the state afterwards, seen from outside: which processes exist, and whether they are frozen. Its test makes a table
// of the results; with -long it uses souk's real timeouts, and with -write it writes docs/results-stalls.md.
package stalls
