// Package names answers DNS queries (RFC 1035) for the machines of a cluster, from the view of one member:
//
//	<app>.souk                  the machines of an app that take requests
//	<group>.<app>.souk          those of one of its groups
//	<id>.<app>.souk             one machine, by its id or its name
//	_all.<name>                 before one of these: all of them, also in A and AAAA
//
//	A, AAAA    the address of one of them, drawn at random for each answer, and not of the machine that asks, where there
//	           is another: its own, where it has one (AAAA, and A on its own host, where alone that leads there), or of
//	           its worker's host, which machines share;
//	           none of those that lead nowhere from this member's host: the name of such a machine has an empty answer
//	           where there is none, and the app or group has services: A of this host's entry for it, which wakes and leads on
//	SRV        each one's name and port, for machines whose first service has one (RFC 2782)
//	TXT        "id=..." "name=..." "worker=..." "region=..." of each
//
// Machines that take requests are started, on workers that can be heard, pass the checks that requests depend on, and
// are kept up: a run of a schedule or the release command is none. They are told in random order. What is
// told is as old as the view: a moment. Its TTL says so, and a name without machines is no error but an empty answer
// where the app is known.
//
// # Bounds
//
// One question a message, MaxAnswers records an answer, MaxQueries under way at once (more are dropped over UDP, as a
// full socket would), MaxConns TCP connections that are idle for no longer than idleTime. Nothing outside of the zone
// is answered and nobody else is asked, so the server is of no use to attack others with but for its own small answers;
// it listens on loopback unless told otherwise. With a Forwarder it asks the host's servers for the names of others, for
// containers of that host: MaxForwarded at once, MaxForwardedOne of each, over the protocol that it was asked by, each
// server for forwardTime.
package names
