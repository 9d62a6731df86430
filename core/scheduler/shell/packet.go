package shell

import (
	"encoding/json"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler"
)

// Lane is one scheduler for tasks of one shape.
type Lane struct {
	Scheduler string `json:"s"` // NAME or NAME:N of package registry
	Shape     string `json:"h"` // what Options.Slots makes of it
}

// Token names a task of a batch.
type Token struct {
	Lane       Lane   `json:"lane"`
	Generation uint64 `json:"g"`
	Batch      int32  `json:"b"` // its number in the generation
	Task       int32  `json:"t"` // from 0 on
}

// Verb is what a packet is for.
type Verb uint8

// The verbs.
const (
	Deliver   Verb = iota // Msg is for a party of the receiver
	Arrive                // the batch Msg.Job has arrived at the center Msg.To, which is the receiver's
	Open                  // the lane is used: the receiver takes part
	Fetch                 // task Msg.Task of batch Msg.Job is about to run at the sender: the keeper is to grant it
	Round                 // the sender's round is Generation: see Node.renewLane
	Give                  // the answer to Fetch; the grant comes with the packet, or the task is not to run
	Explain               // by question Msg.Offer: how does batch Msg.Job stand with the receiver's parties?
	Explained             // the answer to Explain: Said
)

// Packet is a message from one member to another.
type Packet struct {
	Verb       Verb          `json:"v,omitempty"`
	Lane       Lane          `json:"-"`
	LaneAt     int           `json:"l,omitempty"` // where Lane is in Parcel.Lanes
	Generation uint64        `json:"g"`
	Msg        scheduler.Msg `json:"m,omitzero"`
	// Payload is that of Msg, and Facts describe the batches that both are about.
	Payload json.RawMessage `json:"p,omitempty"`
	Facts   []Fact          `json:"f,omitempty"`
	Said    []Said          `json:"x,omitempty"`
}

// Gives returns the token that the packet hands to a worker on its keeper's behalf; false: it hands over none.
func (p *Packet) Gives() (t Token, is bool) {
	is = p.Verb == Give || p.Verb == Deliver && p.Msg.Gives
	return Token{p.Lane, p.Generation, p.Msg.Job, p.Msg.Task}, is
}

// Fact is what a receiver must know of a batch.
type Fact struct {
	Batch int32         `json:"b"`
	Job   scheduler.Job `json:"j"`
}

// Parcel is packets on their way to one member.
type Parcel struct {
	By      cluster.WorkerID `json:"-"` // "": the member that the connection is with
	To      cluster.WorkerID `json:"-"`
	Link    uint64           `json:"link"`            // the number of the direction from the sender to the receiver
	First   uint64           `json:"first,omitempty"` // the number of the first packet in it, counted from 1
	Packets []Packet         `json:"packets,omitempty"`
	Lanes   []Lane           `json:"lanes,omitempty"` // of the packets, each once
	// Seen is the number of the last packet that has come from the receiver, and Of that of the direction.
	Of   uint64 `json:"of,omitempty"`
	Seen uint64 `json:"seen,omitempty"`
}

// addLane adds the lane of a packet of the parcel to its lanes.
func (p *Parcel) addLane(x *Packet) {
	if x.LaneAt = slices.Index(p.Lanes, x.Lane); x.LaneAt < 0 {
		x.LaneAt = len(p.Lanes)
		p.Lanes = append(p.Lanes, x.Lane)
	}
}

// findLane sets the lane of a packet of a parcel that has come over a connection; false: the parcel does not have it.
func (p *Parcel) findLane(x *Packet) bool {
	if x.LaneAt < 0 || x.LaneAt >= len(p.Lanes) {
		return false
	}
	x.Lane = p.Lanes[x.LaneAt]
	return true
}
