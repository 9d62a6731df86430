// Package api is the HTTP API in Go's words: the requests and answers, and one table of routes. The gateway serves the
// table, the client calls it, and the documents are made of it, so nothing of the API is written down twice.
//
// A struct here is a wire shape and nothing more. Machines, volumes and their parts are in package machine; workers and
// members are in package cluster; decisions, quotes and jobs are in the packages that make them.
//
// # Who may ask
//
// Every request needs a token: "Authorization: Bearer T", also "FlyV1 T", several separated by commas. Only /livez and
// /readyz need none. There is no cookie and no session.
//
// A token has a role. An admin may do everything; an operator everything but tokens, and policies it may only read; a
// viewer reads, but not who has tokens. What a role may not do is refused with 403 and the code "role".
//
// # Names and ids
//
// Paths below /v1/souk are souk's own, all others are the Machines API's. The {id} of a machine in souk's own paths may
// also be the machine's name, and the {job} of a job its name: then the newest job of that name is meant.
//
// # Machines
//
// What acts on a machine is answered when it is done, or else after 20 seconds that it has begun, in the field
// "begun": {"operation", "until"} name what is on its way and the state to wait for. It goes on until it is done,
// whatever ends meanwhile; a stop and a destroy never fail for want of time. Without "begun" it is done. With the
// header "Prefer: respond-async" start, stop, restart and suspend answer as soon as they have begun. What acts on a
// machine under a lease needs the lease's nonce in the header fly-machine-lease-nonce. A create with the header
// Idempotency-Key may be repeated: it answers the machine of the first time. While the member that decides about a key
// cannot be asked, nor the workers that may have made its machine, the answer is 503 with the code key_open: ask again. A
// client that sends a key for the first time says so with the header "Souk-New-Key: 1", and has no such answer. One that
// repeats a create says with the header Souk-Key-Age how many seconds ago it drew the key: a worker that had died by then
// is not waited for.
//
// # Jobs
//
// A job is kept by one member, at first the one where it was submitted: "member" names it. Any member answers for it.
// "heir" names the member that has a copy of the job and takes over when the keeper is given up for dead. While the keeper does not
// answer, any member answers from the copy, and "why" says so; but what changes the job, or asks for the output of its
// tasks, ends with an error of the kind unavailable and the code job_member, which names both: ask again. Where there is
// no copy, every call about the job ends so; likewise where a member that cannot be asked may keep the job. A job is
// found by its name though a silent member may keep a newer one, which the header Souk-Missing then names; but nothing
// is cancelled by that name. A job that is submitted again under its id is answered as it is, at any member. A client
// that has just drawn the id says so with the header "Souk-New-Key: 1", and no other member is asked; one that submits
// the job again says with the header Souk-Key-Age how many seconds ago it drew the id: a member that had died by then is
// not waited for.
//
// # Streams
//
// An NDJSON answer is one JSON value a line. A stream that breaks off ends with a line {"error": "..."}, in the shape
// of every error.
//
// The body of an exec stream is one line of JSON, {"command": [...]}, and then the command's stdin until the body ends.
// Its answer is NDJSON, sent as it happens: {"stream": "stdout", "data": BASE64} or "stderr", and as the last line
// {"exit_code": N}. Both directions flow at once over HTTP/1.1. Closing the connection ends the command.
//
// A connection to a port of a machine is a POST whose body goes there as it is, and whose answer is what comes from
// there, both at once; the end of the body tells the machine that nothing more comes.
//
// # Lists
//
// A list answers though a worker cannot be asked: the header Souk-Missing then names the worker. What it last told of
// its machines stands in, with the host_status "unreachable"; its volumes, destroyed machines and jobs are left out.
//
// # Errors
//
// Every error is {"error": sentence, "status"?, "souk": {kind, code, scope, resource, retry_after, ...}} with the
// status code of the Machines API. A refusal is never 502 or 503, which clients repeat. Every answer carries
// fly-request-id.
package api

import "github.com/soukhq/souk/machine"

// The headers of the API.
const (
	RequestIDHeader   = "fly-request-id"          // of every answer: its request, to be found in the server's log
	NonceHeader       = "fly-machine-lease-nonce" // of a request: the nonce of the machine's lease
	IdempotencyHeader = "Idempotency-Key"         // of a create: repeated, it answers the machine of the first time
	NewKeyHeader      = "Souk-New-Key"            // with the header before: "1", the client has not sent the key before
	KeyAgeHeader      = "Souk-Key-Age"            // with the key: how many seconds ago the client drew it
	MissingHeader     = "Souk-Missing"            // of a list: the workers that could not be asked
	DoorsHeader       = "Souk-Doors"              // of an answer: which list of doors (ListDoors) holds now
	// NextCursorHeader, in an answer that is an array, has the cursor of the next page; absent: it was the last.
	NextCursorHeader = "Souk-Next-Cursor"
	PreferHeader     = "Prefer"
	RespondAsync     = "respond-async" // as Prefer: answer when an operation has begun, not when it is done
)

// SetValue is the body that sets one value: of a secret, or of a key of metadata.
type SetValue struct {
	Value *string `json:"value"`
}

// OK is the answer of calls that return nothing else. For a verb on a machine, Begun reports that it is not done yet.
type OK struct {
	OK    bool           `json:"ok"`
	Begun *machine.Begun `json:"begun,omitempty"` // nil: the verb is done
}
