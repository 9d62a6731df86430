// Package proxy lets requests from outside reach machines, and wakes machines for them.
//
// Each member has one. Whoever asks any of them is answered by a machine, wherever that is:
//
//	client ──► door ──► pool (routing.Pool: which machine) ──► owner ──► machine
//	                                   │                        ▲
//	                                   └─── the wire, HTTP/1.1 ─┘   where another member has it
//
// A door is a listener: for HTTP by the name in the request, for HTTP over TLS by the name in the handshake, or one
// port of one app. A pool is what this entry knows of the machines behind one service, from the fleet's snapshot; no
// worker is asked, and no call of the gateway's made, on the way of a request. The owner is the member that has the
// machine: it alone counts all that the machine is asked, holds it to its limits, wakes it and lets it rest. When an
// entry is mistaken the owner says so (a correction), and the request goes elsewhere before anything of it was done.
package proxy
