// Package fsm is a durable state-machine engine without I/O: operations are runs of named steps, each step asks for
// one effect, and every transition is a Record to be journalled before anything that depends on it happens.
package fsm
