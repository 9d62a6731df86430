// Package fleet keeps a picture of the fleet, so that readers need not ask the workers: each worker's last record, its
// machines with their names, whether its member is reachable, and which workers are known but have not reported yet, so
// that they must be asked.
//
// The picture is an immutable Snapshot behind an atomic pointer. Readers (placement, lists, names, DNS, pages) load it
// in O(1), keep it as long as they like and see one moment of the fleet. Writers update it: a change copies the few
// branches on its path and shares the rest with every snapshot before.
//
//	worker of this process ── Own ──────┐
//	gossip's changes ─────── Update ────┼──► Fleet ──► Snapshot (pointer)
//	a refusal's fresh record, a grant ──┘      └──────► index (Pick, Resolve)
//
// The picture is a view: it may be stale, so it ranks and finds, and only the worker itself decides. Beside the
// snapshots a Fleet keeps one index (package core/placement/index), which finds good workers for a request without a look at
// all of them.
package fleet
