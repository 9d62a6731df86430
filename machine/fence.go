package machine

import "strconv"

// MetadataMoved is the metadata key under which a remade machine names the machine that it replaces.
const MetadataMoved = "souk_moved_from"

// MetadataEpoch is the metadata key that counts how often a machine was remade to replace another.
const MetadataEpoch = "souk_fence_epoch"

// FenceEpoch returns the count under MetadataEpoch, or a replica's epoch; 0 if the metadata has no valid count.
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

// Fence returns a machine's fencing token (Kleppmann, How to do distributed locking, 2016) for one of its lives:
// larger than that of each earlier life, and of every life, past or future, of the machines that it replaced. A store
// that the machine writes to can refuse tokens smaller than one it has seen.
//
// The upper half counts the machines, the lower half the lives of this one (attempt, which is never used twice). Two
// stewards that do not hear each other may give two machines one count: a replica's lower half begins with a part of
// its ID, so that their tokens differ.
func Fence(m *Machine, attempt uint64) uint64 {
	if m.Replica == nil {
		return FenceEpoch(m)<<32 | min(attempt, 1<<32-1)
	}
	return FenceEpoch(m)<<32 | twinNumber(m.ID)<<livesBits | min(attempt, 1<<livesBits-1)
}

// livesBits is the number of bits for the lives of a replica.
const livesBits = 24

// twinNumber returns the first eight bits of a machine's ID, which distinguish machines with the same count. They are
// ordered like IDs.
func twinNumber(id string) uint64 {
	n, err := strconv.ParseUint(id[:min(2, len(id))], 16, 8)
	if err != nil {
		return 0
	}
	return n
}
