package rollout

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// Launch returns the launch of the machine that an order makes, of the release.
func (o *Order) Launch(r *release.Release) *machine.Launch {
	l := r.Launch(&o.Replica, o.Machine, o.Home)
	l.SkipLaunch, l.SkipServiceRegistration = o.Asleep, o.Apart
	return l
}

// epochBits is for how many machines of one slot a term has epochs.
const epochBits = 12

// FirstEpoch returns the least epoch of a machine that is made in a term. It is greater than that of each machine of the
// terms before, also of those that are gone and that nobody remembers.
func FirstEpoch(t cluster.Term) uint64 { return t.Number << epochBits }

// nextEpoch returns the epoch of the next machine of a slot, where the newest that is known has epoch seen; known is false
// where there is none. ok is false where the term has none left: its steward must begin another.
func nextEpoch(t cluster.Term, seen uint64, known bool) (epoch uint64, ok bool) {
	epoch = FirstEpoch(t)
	if known {
		epoch = max(epoch, seen+1)
	}
	return epoch, epoch < FirstEpoch(t)+1<<epochBits && epoch <= machine.MaxEpoch
}
