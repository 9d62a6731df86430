// Package wire is how members of a cluster talk: HTTP/2 and JSON over TLS with a certificate at each end (package pki).
//
// A Server offers one worker's verbs to gateways, an exchange of records to every member, and, where the CA is, joins
// and renewals. A Client has Links to other members; a Worker is a worker at the other end of one, and does what a
// worker in the same process does (gateway.Worker).
//
// # Who may do what
//
// The certificate is the caller's name, and there is no other. The verbs of a worker are for members with the role
// gateway. An exchange (Pull) is told who asks, and must let a worker speak of itself only (pki.Name.SpeaksFor). A
// member that calls names whom it wants: what answers at an address must be that id.
//
// # Answers
//
// An error crosses whole: kind, code, scope, resource, time to wait, sentence, and what goes with it (a
// market.Refusal). An answer that did not come is Unavailable: "unreachable" when the question surely was not asked,
// "lost" when nobody knows. Whoever buys asks the same worker again, with the next number; see asks.go for why a late
// question cannot buy twice.
//
// Too many calls at once are refused early, as "busy" with a time to wait, by a bound for all callers and half of it
// for each.
//
// # Versions
//
// Each message carries two dates: what its sender speaks, and the oldest it still understands. Each end refuses what it
// does not understand before anything is done. Fields that a reader does not know are passed over.
package wire
