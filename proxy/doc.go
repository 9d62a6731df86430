// Package proxy lets requests from outside reach machines, and wakes machines for them.
//
// Each member has one. A request may come in at any of them, and reaches a machine wherever that runs:
//
//	client ──► door ──► pool (routing.Pool: which machine) ──► owner ──► machine
//	                                   │                        ▲
//	                                   └─── the wire, HTTP/1.1 ─┘   where another member has it
//
// A door is a listener: for HTTP by the name in the request, for HTTP over TLS by the name in the handshake, or one
// port of one app. A pool holds what this entry knows of the machines behind one service, from the fleet's snapshot; a
// request makes no call to a worker or to the gateway. The owner is the member that has the machine: it alone counts
// the machine's requests, enforces its limits, wakes it and stops it when idle. When an entry's picture is stale the
// owner answers with a correction, and the request goes to another machine before anything of it was done.
package proxy
