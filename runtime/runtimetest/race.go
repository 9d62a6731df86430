//go:build race

package runtimetest

// RaceEnabled reports whether the race detector is on, which distorts what is measured.
const RaceEnabled = true
