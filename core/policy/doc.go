// Package policy turns what operators write into placement policies: TOML files with CEL expressions over a request
// and a worker. Loading checks the whole file, including the types and the cost of every expression, so an applied
// policy can be evaluated in a bounded time on any record.
//
// # Vocabulary
//
// A Source is a file that was loaded. Bind makes a placement.Policy of it with an Evaluator, which holds the boxed
// values of one goroutine's records; a Source itself may be shared. A VersionStore keeps the versions of the policies
// of a cluster, as a value. Package whatif reports what another policy would place elsewhere.
//
// # Undefined
//
// An expression is total, with a third value (as HTCondor's ClassAds have it: Raman, Livny, Solomon, HPDC 1998). A
// missing attribute, or one of another type, makes the expression undefined, unless the other side of an || or &&
// decides. An undefined filter refuses with the reason; an undefined score counts 0 and leaves a note with the
// candidate.
//
// The files shipped with souk are in builtin/; docs/reference/policies.md describes the format.
package policy
