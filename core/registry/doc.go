// Package registry is each member's view of all others: a cache of their state, on which no decision depends. It is
// pure: carriers (gossip, wire, the simulator) bring messages, now is an argument, nothing waits.
//
// # Records: one writer
//
// A Record has one writer, its Owner, and is always written as a whole. The owner numbers all its changes with one
// sequence: a record's Version is the number of the change that wrote it, and (Incarnation, Version) orders all that
// the owner has written. An incarnation begins with everything the owner has, announced again from its journal; once
// that is complete (Update.Full), records left from an earlier incarnation are dropped.
//
// What travels is an Update: the newest form of all that an owner changed in (From, To]. A receiver that has
// everything up to From has everything up to To afterwards; else it has a gap, which Delta mends from any member that
// has more. This is the reconciliation of Scuttlebutt (van Renesse, Dumitriu, Gough, Thomas: "Efficient Reconciliation
// and Flow Control for Anti-Entropy Protocols", LADIS 2008, section 3), with updates in place of single versions
// because owners coalesce.
//
// A deletion is a Record that says so. The owner forgets its deletions after a time or a number; the highest version
// so forgotten is where it is compacted (Update.Compacted). A member that knows less gets everything from 0, which is
// a resync, and drops records that this does not include.
//
// # Objects: many writers
//
// Any member may write apps, policies and cordons. They are whole objects under a hybrid logical clock (Stamp); the
// last writer wins and ties go to the greater writer id. A stamp more than MaxAhead before our clock is refused.
//
// # Comparing two registries
//
// A Digest is one number when nothing differs. When it does, the answer names buckets of owners, the next digest lists
// what the asker knows of the owners in those that differ, and the answer has what it lacks. So records that did not
// change cost nothing, however many there are.
package registry
