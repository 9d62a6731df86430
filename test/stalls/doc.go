// Package stalls stops souk, or the reaper of its worker, in the middle of every verb, and holds what was answered
// against what is so afterwards, seen from outside: which processes there are, and whether they are frozen. Its test
// makes a table of that; with -long it takes the real times of souk, and with -write it is docs/results-stalls.md.
package stalls
