// Package wire lets members of a cluster call each other: HTTP/2 and JSON over TLS with a certificate at each end
// (package pki).
//
// A Server offers one worker's verbs to gateways, an exchange of records to every member, and, on an issuer, joins and
// renewals. A Client has Links to other members; a Worker is the remote counterpart of a worker in the same process and
// has the same methods (gateway.Worker).
//
// # Authorization
//
// The certificate alone identifies the caller. The verbs of a worker are for members with the role gateway. An exchange
// (Pull) receives the caller's name, and must let a worker publish only records of itself (pki.Name.SpeaksFor). A
// caller names the member it wants: the server at the address must have that id.
//
// # Answers
//
// An error is transferred completely: kind, code, scope, resource, time to wait, sentence, and detail (such as a
// market.Refusal). A missing answer is Unavailable: "unreachable" if the request was certainly not received, "lost" if
// that is unknown. The buyer then asks the same worker again, with the next number; see asks.go for why a late request
// cannot buy twice.
//
// When too many calls are in progress, further ones are refused early, as "busy" with a time to wait. There is a limit
// for all callers together, and half of it for each caller.
//
// # Versions
//
// Each message carries two dates: the version that its sender speaks, and the oldest one it understands. Each end
// refuses a version that it does not understand before it does anything. Unknown fields are ignored.
package wire
