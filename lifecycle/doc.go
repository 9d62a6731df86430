// Package lifecycle holds the life of machines on one worker as durable operations: create, start, stop, restart,
// suspend, signal, update and destroy, with leases, restart policies and schedules. It is pure: see Supervisor.
package lifecycle
