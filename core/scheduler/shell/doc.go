// Package shell runs the parties of one member of a cluster, for every scheduler that is used there, as a pure state
// machine: time, the members, packets of other members, and the tasks that began and ended come in; packets for other
// members and the tasks that are to run here go out.
//
// # Vocabulary
//
// A *lane* is one scheduler for tasks of one shape: it counts a worker's slots for that shape. A *batch* is tasks that
// are handed to a lane as one of its jobs. A *token* names one of these tasks. The *keeper* of a batch is the member
// that submitted it: it knows what a token stands for, and grants the task.
//
// # Generations
//
// No architecture knows of members that come, go or restart. A lane has a *generation* for each state of the fleet: its
// number is a hash of the members, their incarnations and slots, and the hour. Members that see the same fleet have the
// same generation, and no message is understood in another. When a member sees another fleet it forgets the lane's
// state and begins anew: its worker counts the slots that are free, its queues are empty, and its keeper submits again
// what still waits. So a death, a new member, a drain, a restart, and a central place that moves are all one thing, and
// two central places of one lane are never believed by the same member. What runs goes on.
//
// # The owner's duty
//
// After each call of a Node: Take, and carry out what is in it. Every Begin is answered: by Ended once the task has
// ended, or was not there to run.
package shell
