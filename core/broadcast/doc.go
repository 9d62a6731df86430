// Package broadcast delivers a message of one member to all others, once to each, along a tree that is built for each
// message. It is pure: a carrier (gossip, the simulator) passes in packets and the time, and sends the packets that it
// returns.
//
// # The tree
//
// Members stand on a ring, by a hash of their id. The publisher divides the ring, without itself, into a few arcs of
// equally many members, picks one member of each at random, and sends it the message with the arc: that member relays
// it to the rest of its arc in the same way. So each member gets a message once, sends it once on average, and the
// work of passing on falls on others with each message. This is the broadcast over a ring of El-Ansary, Alima, Brand
// and Haridi ("Efficient Broadcast in Structured P2P Networks", IPTPS 2003), with chance in the place of fingers. An
// arc is two positions and no list of members, so members that disagree on the membership still cover it.
//
// # Loss
//
// Every packet is acknowledged. A packet without an acknowledgement is sent again, after a time that follows the round
// trips (Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988), and after a few times its arc is given to
// another member of it. Messages that are given up, and members that were not on the ring, are caught up by comparing
// registries: delivery here is best effort, and nothing is kept for longer than a few seconds.
//
// Why not a tree that is kept, with lazy announcements beside it (Leitao, Pereira, Rodrigues: "Epidemic Broadcast
// Trees", SRDS 2007): see docs/decisions/0026-broadcast-tree.md.
package broadcast
