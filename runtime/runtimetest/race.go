//go:build race

package runtimetest

// RaceEnabled says whether the race detector is on: what is measured then is the detector.
const RaceEnabled = true
