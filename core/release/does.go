package release

// Does is what a deploy does with a replica.
type Does string

// What a deploy can do with a replica.
const (
	Keep    Does = "keep"    // its machine stays as it is
	Renew   Does = "update"  // its machine has another spec, and a new one replaces it
	Restart Does = "restart" // as Renew, but only the secrets or the count of restarts differ
	Move    Does = "move"    // its machine must leave its worker
	Create  Does = "create"  // it has no machine
	Destroy Does = "destroy" // the replica is not wanted, or the machine is surplus
)
