// Package names answers DNS queries (RFC 1035) for the machines of a cluster, from the view of one member:
//
//	<app>.souk                  the machines of an app that accept requests
//	<group>.<app>.souk          those of one of its groups
//	<id>.<app>.souk             one machine, by its id or its name
//	_all.<name>                 before one of these names: A and AAAA list all machines
//
//	A, AAAA    the address of one machine, drawn at random for each answer; not the asking machine's own, if there is
//	           another. The address is the machine's own, if it has one (AAAA, and A on its own host, the only place
//	           where the IPv4 address is reachable), or that of its worker's host, which machines share. Addresses
//	           unreachable from this member's host are left out: the name of such a machine has an empty answer.
//	           If no machine is left and the app or group has services: A of this host's entry for it, which wakes a
//	           machine and forwards to it
//	SRV        each one's name and port, for machines whose first service has one (RFC 2782)
//	TXT        "id=..." "name=..." "worker=..." "region=..." of each
//
// Machines that accept requests are started, on reachable workers, pass the checks that requests depend on, and are
// kept up: runs of a schedule and release commands do not count. Answers are in random order and as old as the member's
// view, a moment, and their TTL is as short. A name without machines is no error but an empty answer if the app is
// known.
//
// # Bounds
//
// A message has one question, and an answer at most MaxAnswers records. MaxQueries are in progress at once; more are
// dropped over UDP, as a full socket would. There are at most MaxConns TCP connections, idle for no longer than
// idleTime. Without a Forwarder the server refuses names outside of its zone and asks no other server, so it can
// amplify an attack only by its own small answers; by default it listens on loopback. With a Forwarder it asks the
// host's servers for other names, for containers of that host: MaxForwarded queries at once, MaxForwardedOne of each
// address, over the protocol of the query, for at most forwardTime per server.
package names
