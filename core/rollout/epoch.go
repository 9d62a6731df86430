package rollout

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// Launch returns the launch of the machine that an order makes, from the release.
func (o *Order) Launch(r *release.Release) *machine.Launch {
	l := r.Launch(&o.Replica, o.Machine, o.Home)
	l.SkipLaunch, l.SkipServiceRegistration = o.Asleep, o.Apart
	return l
}

// epochBits is the number of bits for the epochs of one slot in a term.
const epochBits = 12

// FirstEpoch returns the lowest epoch of a machine made in a term. It is greater than that of any machine of an
// earlier term, known or not.
func FirstEpoch(t cluster.Term) uint64 { return t.Number << epochBits }

// nextEpoch returns the epoch of a slot's next machine. seen is the newest known epoch, if known. ok is false if the
// term has none left: its steward must begin another.
func nextEpoch(t cluster.Term, seen uint64, known bool) (epoch uint64, ok bool) {
	epoch = FirstEpoch(t)
	if known {
		epoch = max(epoch, seen+1)
	}
	return epoch, epoch < FirstEpoch(t)+1<<epochBits && epoch <= machine.MaxEpoch
}
