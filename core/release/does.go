package release

// Does is what a deploy does to a replica.
type Does string

// What a deploy can do to a replica.
const (
	Keep    Does = "keep"    // its machine stays as it is
	Renew   Does = "update"  // its machine is of another spec, and another takes its place
	Restart Does = "restart" // the same: all but the secrets, or the count of restarts, is as before
	Move    Does = "move"    // its machine must leave its worker
	Create  Does = "create"  // it has no machine
	Destroy Does = "destroy" // the replica is not wanted, or the machine is one too many
)
