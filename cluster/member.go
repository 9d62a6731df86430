package cluster

import "time"

// MemberState is a member's state as gossip sees it.
type MemberState string

// The states of a member.
const (
	MemberAlive MemberState = "alive"
	// direct and indirect probes got no answer; it may still refute the suspicion
	MemberSuspect MemberState = "suspect"
	MemberDead    MemberState = "dead" // it was suspected for so long that it would have refuted it
	MemberLeft    MemberState = "left" // it announced its leaving
)

// Member is a member of the cluster as another knows it. State says nothing about its machines, which may go on
// running.
type Member struct {
	ID         WorkerID      `json:"id"`
	Addr       string        `json:"addr"` // host:port of its gossip
	API        string        `json:"api,omitempty"`
	Role       string        `json:"role,omitempty"`
	Capability int           `json:"capability,omitempty"`
	Keys       int           `json:"keys,omitempty"` // the generation of its gossip keys
	State      MemberState   `json:"state"`          // since Since
	Since      time.Time     `json:"since"`
	RTT        time.Duration `json:"rtt_ns,omitempty"` // of its last answer to our probe
	Self       bool          `json:"self,omitempty"`
	Removed    bool          `json:"removed,omitempty"` // removed from the cluster: it must join again
	Build      Build         `json:"build,omitzero"`    // which souk it runs
}

// Door is where a member serves the API for other hosts.
type Door struct {
	Member WorkerID `json:"member"`
	Addr   string   `json:"addr"`           // https://HOST:PORT
	Root   string   `json:"root,omitempty"` // PEM root of souk's own certificate; "": a public authority's
}

// Removal says that a member was removed: its certificates up to then are rejected.
type Removal struct {
	Member WorkerID  `json:"member"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	// when it got a certificate to join again; zero: it has not
	Rejoined time.Time `json:"rejoined,omitzero"`
}

// Heard reports whether the member counts as reachable: alive, or only suspected.
func (m Member) Heard() bool { return m.State == MemberAlive || m.State == MemberSuspect }
