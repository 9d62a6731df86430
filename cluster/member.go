package cluster

import "time"

// MemberState is what is believed of a member.
type MemberState string

// The states of a member.
const (
	MemberAlive MemberState = "alive"
	// our own probe, and those that we asked for, got no answer; it may yet say that it lives
	MemberSuspect MemberState = "suspect"
	MemberDead    MemberState = "dead" // it was suspected for so long that it would have said so
	MemberLeft    MemberState = "left" // it said goodbye
)

// Member is a member of the cluster as another knows it. State says nothing about its machines, which may go on
// running.
type Member struct {
	ID         WorkerID      `json:"id"`
	Addr       string        `json:"addr"` // host:port of its gossip
	API        string        `json:"api,omitempty"`
	Role       string        `json:"role,omitempty"`
	Capability int           `json:"capability,omitempty"`
	Keys       int           `json:"keys,omitempty"` // the generation of the keys of gossip that it has
	State      MemberState   `json:"state"`          // believed since Since
	Since      time.Time     `json:"since"`
	RTT        time.Duration `json:"rtt_ns,omitempty"` // of its last answer to a probe of ours
	Self       bool          `json:"self,omitempty"`
	Removed    bool          `json:"removed,omitempty"` // from the cluster: it must join anew
	Build      Build         `json:"build,omitzero"`    // which souk it runs
}

// Door is where a member serves the API for other hosts.
type Door struct {
	Member WorkerID `json:"member"`
	Addr   string   `json:"addr"`           // https://HOST:PORT
	Root   string   `json:"root,omitempty"` // PEM, of souk's own certificate; "": an authority's that clients trust
}

// Removal is a member that may not come back with the certificate that it has.
type Removal struct {
	Member WorkerID  `json:"member"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	// when it was given a certificate to join anew with; zero: it was not
	Rejoined time.Time `json:"rejoined,omitzero"`
}

// Heard reports whether the member can be told something: it is alive, or only suspected.
func (m Member) Heard() bool { return m.State == MemberAlive || m.State == MemberSuspect }
