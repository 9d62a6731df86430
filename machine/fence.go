package machine

import "strconv"

// MetadataMoved is the metadata key under which a machine that was made anew says whose place it takes.
const MetadataMoved = "souk_moved_from"

// MetadataEpoch is the metadata key that counts how often a machine was made anew in the place of another.
const MetadataEpoch = "souk_fence_epoch"

// FenceEpoch returns that count, or of a replica its epoch; 0 where the metadata says none that can be read.
func FenceEpoch(m *Machine) uint64 {
	if m.Replica != nil {
		return m.Replica.Epoch
	}
	if m.Config == nil {
		return 0
	}
	n, err := strconv.ParseUint(m.Config.Metadata[MetadataEpoch], 10, 31)
	if err != nil {
		return 0
	}
	return n
}

// Fence returns a machine's fencing token (Kleppmann, How to do distributed locking, 2016) for one of its lives: larger
// than that of each life before, and of every life of the machines whose place it took, also of those that are yet to
// begin where nobody can hear of them. What the machine writes to can refuse any that is smaller than one it has seen.
//
// The upper half counts the machines, the lower the lives of this one (attempt, which is never used twice). Two
// stewards that do not hear each other may give two machines one count: of replicas the lower half begins with a part
// of the id, so that their tokens differ.
func Fence(m *Machine, attempt uint64) uint64 {
	if m.Replica == nil {
		return FenceEpoch(m)<<32 | min(attempt, 1<<32-1)
	}
	return FenceEpoch(m)<<32 | twinNumber(m.ID)<<livesBits | min(attempt, 1<<livesBits-1)
}

// livesBits is for how many lives a replica has tokens.
const livesBits = 24

// twinNumber returns what tells a machine from one of the same count: the first eight bits of its id. Where ids are
// ordered, so are the bits.
func twinNumber(id string) uint64 {
	n, err := strconv.ParseUint(id[:min(2, len(id))], 16, 8)
	if err != nil {
		return 0
	}
	return n
}
