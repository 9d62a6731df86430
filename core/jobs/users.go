package jobs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// UserAnswer says whether a worker runs tasks as a Unix user. Its record says only whom it may admit: whether it has the
// user, with this number, it looks up once it gets a bid for such tasks.
type UserAnswer struct {
	User cluster.UnixUser `json:"u"`
	Why  string           `json:"w,omitempty"` // why it does not; "": it does
}

// SetUser takes the answer about a Unix user: without one, or with a bad one, no slot is offered for his tasks.
func (s *Slots) SetUser(a UserAnswer) { s.users[a.User] = a }

// UserAnswer returns the answer about a Unix user.
func (s *Slots) UserAnswer(u cluster.UnixUser) (a UserAnswer, known bool) {
	a, known = s.users[u]
	return a, known
}

// UsersWithoutAnswer lists the Unix users in bids for whom there is no answer.
func (s *Slots) UsersWithoutAnswer() (out []cluster.UnixUser) {
	for _, u := range s.usersBid() {
		if _, known := s.users[u]; !known {
			out = append(out, u)
		}
	}
	return out
}

// usersBid lists the Unix users in bids.
func (s *Slots) usersBid() []cluster.UnixUser {
	all := map[cluster.UnixUser]bool{}
	for _, b := range s.buyers {
		for i := range b.bids {
			if u := b.bids[i].Shape.User; !u.IsZero() {
				all[u] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), compareUsers)
}

// KeepUsers lists the Unix users in bids, and drops the answers about others.
func (s *Slots) KeepUsers() []cluster.UnixUser {
	bid := s.usersBid()
	maps.DeleteFunc(s.users, func(u cluster.UnixUser, _ UserAnswer) bool { return !slices.Contains(bid, u) })
	return bid
}

// RefusedUsers lists the bad answers.
func (s *Slots) RefusedUsers() (out []UserAnswer) {
	for _, u := range slices.SortedFunc(maps.Keys(s.users), compareUsers) {
		if a := s.users[u]; a.Why != "" {
			out = append(out, a)
		}
	}
	return out
}

// admits reports whether tasks of a user may run here.
func (s *Slots) admits(u cluster.UnixUser) bool {
	a, known := s.users[u]
	return u.IsZero() || known && a.Why == ""
}

func compareUsers(a, b cluster.UnixUser) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// hearUsers takes a worker's answers about Unix users.
func (d *Dispatcher) hearUsers(s *workerState, answers []UserAnswer) {
	for _, a := range answers {
		if s.refused[a.User] == a.Why {
			continue
		}
		if a.Why == "" {
			delete(s.refused, a.User)
		} else {
			s.refused[a.User] = a.Why
		}
		for _, sh := range d.queues {
			sh.stale = sh.stale || sh.shape.User == a.User
		}
	}
}

// judgeShape is the judge's verdict on a task of a shape at a worker, with the worker's answer about its user, which no
// record has.
func (s *workerState) judgeShape(shape Shape) placement.Verdict {
	v := placement.Judge(shape.Request(), s.record)
	if why := s.refused[shape.User]; why != "" {
		v.Fits = false
		v.Failing = append(v.Failing, machine.Clause{Code: placement.CodeUnixUser,
			Wanted: shape.User.Name, Had: why})
	}
	return v
}
