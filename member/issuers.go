package member

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/store/journal"
)

// issuersFile keeps the issuers' last addresses: a member that no longer shares a gossip key with the others can still
// ask them over the wire.
const issuersFile = "issuers.json"

// issuers tracks the members that sign certificates and hand out gossip keys.
type issuers struct {
	m  *Member
	mu sync.Mutex
	at map[cluster.WorkerID]string // wire addresses; never this member
	// said has the addresses that unreachable issuers announced over the wire.
	said map[cluster.WorkerID]string
	keys int // the newest key generation that an issuer announced over the wire
}

// announced records that an issuer has newer keys, and its address. Gossip may have said neither: a member without the
// new key cannot hear an issuer that has moved and uses it. announced is a wire.Options.NewerKeys.
func (s *issuers) announced(by wire.Peer, generation int, addr string) {
	s.mu.Lock()
	s.said[cluster.WorkerID(by.ID)] = addr
	s.keys = max(s.keys, generation)
	s.mu.Unlock()
	select {
	case s.m.keysDue <- struct{}{}:
	default: // followKeys will look already
	}
}

// newest returns the newest key generation that an issuer announced over the wire.
func (s *issuers) newest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func openIssuers(m *Member) *issuers {
	s := &issuers{m: m, at: map[cluster.WorkerID]string{}, said: map[cluster.WorkerID]string{}}
	raw, err := os.ReadFile(filepath.Join(m.o.Dir, issuersFile))
	if err != nil || json.Unmarshal(raw, &s.at) != nil || s.at == nil {
		s.at = map[cluster.WorkerID]string{} // gossip will bring it again
	}
	return s
}

// JoinedAt saves in a member's directory the address where it joined: the only issuer that it knows before gossip has
// named any.
func JoinedAt(dir, addr string) error {
	raw, err := json.Marshal(map[cluster.WorkerID]string{"": addr})
	if err == nil {
		err = journal.WriteWhole(filepath.Join(dir, issuersFile), raw, 0o600)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, codeIssuers, "the address at which this member joined cannot be "+
			"saved")
	}
	return nil
}

// look updates the addresses, and saves them if they changed. lost lists the addresses of issuers that are unreachable
// now.
func (s *issuers) look() (lost []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := maps.Clone(s.at)
	for _, o := range s.m.cluster.Objects().List(KindIssuer) {
		id := cluster.WorkerID(o.Key)
		if id == s.m.ID() {
			continue
		}
		if x, known := s.m.cluster.Member(id); known && x.API != "" {
			s.at[id] = x.API
		}
	}
	for id, addr := range s.said {
		if s.heard(id) {
			delete(s.said, id) // gossip knows its address again
		} else {
			s.at[id] = addr
		}
	}
	for id := range s.at {
		if id != "" && s.m.removedFor(id) || id == "" && len(s.at) > 1 { // the join address: its issuer is known by now
			delete(s.at, id)
		}
	}
	if !maps.Equal(before, s.at) {
		s.save()
	}
	for _, id := range slices.Sorted(maps.Keys(s.at)) {
		if !s.heard(id) {
			lost = append(lost, s.at[id])
		}
	}
	return lost
}

func (s *issuers) heard(id cluster.WorkerID) bool {
	x, _ := s.m.cluster.Member(id)
	return x.Heard()
}

// save writes the file whole or not at all. After a failure the next change tries again.
func (s *issuers) save() {
	raw, err := json.Marshal(s.at)
	if err == nil {
		err = journal.WriteWhole(filepath.Join(s.m.o.Dir, issuersFile), raw, 0o600)
	}
	if err != nil {
		s.m.o.Log.Warn("the addresses of the issuers are not saved", "err", err)
	}
}

// all returns the addresses of issuers, those alive first.
func (s *issuers) all() []string {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	var alive, others []string
	for _, id := range slices.Sorted(maps.Keys(s.at)) {
		if s.m.stateOf(id) == cluster.MemberAlive {
			alive = append(alive, s.at[id])
		} else {
			others = append(others, s.at[id])
		}
	}
	return append(alive, others...)
}
