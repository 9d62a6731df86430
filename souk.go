// Package souk is the root of the cluster orchestrator souk. It holds no code but the tests that keep the house in
// order (tidy_test.go); start reading at README.md, then ARCHITECTURE.md.
package souk
