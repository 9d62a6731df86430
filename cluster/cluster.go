// Package cluster holds the nouns of the fleet: who a worker is, what it has, and what it says of itself.
// Values only: no package above it is needed to read, compare or add them.
package cluster

import (
	"strconv"
	"strings"
	"time"
)

// WorkerID names a worker for ever: generated once, kept in its directory. Ids match exactly, never by prefix.
type WorkerID string

// Region is a place, as users name it: "local", "iad".
type Region string

// State is what a worker lets be placed on it.
type State string

// The states of a worker.
const (
	Ready    State = "ready"    // takes grants
	Cordoned State = "cordoned" // keeps what it has, takes nothing new
	Draining State = "draining" // as cordoned, and is being emptied
)

// Record is what a worker says of itself, written by that worker only and written whole.
// It is a fact with an age: a view of it may rank, only the worker itself may decide.
type Record struct {
	Worker      WorkerID          `json:"worker"`
	Region      Region            `json:"region"`
	State       State             `json:"state"`
	Incarnation uint64            `json:"incarnation"` // counts the worker's starts
	Version     uint64            `json:"version"`     // counts changes within an incarnation
	Capacity    Resources         `json:"capacity"`    // all that may be granted
	Used        Resources         `json:"used"`        // granted and held
	Machines    int               `json:"machines"`    // machines that exist
	Starting    int               `json:"starting"`    // machines on their way up
	MaxStarting int               `json:"max_starting"`
	Apps        map[string]int    `json:"apps,omitempty"`       // app -> machines here, for spreading
	Images      []string          `json:"images,omitempty"`     // images it can start without a pull
	Volumes     map[string]string `json:"volumes,omitempty"`    // volume id -> machine it is attached to, or ""
	VolumesOf   map[string]int    `json:"volumes_of,omitempty"` // app -> volumes here

	Attributes Attributes    `json:"attributes,omitempty"` // what requests may require: arch, zone, rack, ...
	Require    []Requirement `json:"require,omitempty"`    // of the labels of a request: whom the worker takes at all
	Prefer     []Preference  `json:"prefer,omitempty"`     // of the labels of a request: whom it likes
	Reserved   []string      `json:"reserved,omitempty"`   // only requests that tolerate each of these come here
	// kept free for requests at least as large in one dimension of it
	Headroom Resources `json:"headroom,omitzero"`
	// the devices behind Capacity.GPU; empty: they are only counted
	GPUs      []GPU       `json:"gpus,omitempty"`
	Evictable []Evictable `json:"evictable,omitempty"` // what lower ranks occupy, by rank, lowest first
	Cordon    *Cordon     `json:"cordon,omitempty"`    // why State is not ready; nil while it is
	Backlog   int64       `json:"backlog,omitempty"`   // milliseconds of work that waits here, estimated
	At        time.Time   `json:"at"`                  // when the worker said so

	Spending map[string]Spending `json:"spending,omitempty"` // what its machines spend, by namespace
	Full     []Full              `json:"full,omitempty"`     // whose machines it takes no more of

	// what machines that sleep, and that requests may wake, would claim beside Used if all were woken
	Promised Resources `json:"promised,omitzero"`
	// how much of Capacity Used and Promised may come to before it promises no more, in thousandths; 0: no bound
	PromiseLimit int64 `json:"promise_limit_milli,omitempty"`
}

// MaxPromiseLimit bounds PromiseLimit.
const MaxPromiseLimit = 1000 * 1000

// Promisable gives how much of a dimension Used and Promised may come to before the worker promises no more. There has
// to be a limit.
func (r *Record) Promisable(dim string) int64 {
	have, limit := r.Capacity.Get(dim), min(max(0, r.PromiseLimit), MaxPromiseLimit)
	return have/1000*limit + have%1000*limit/1000 // in this order nothing overflows
}

// DefaultNamespace is the namespace of an app that names none.
const DefaultNamespace = "default"

// Full says that a worker keeps as many machines as it may, of an app, of a namespace, or, where neither is named, of
// all. It takes no other until some are over.
type Full struct {
	App       string `json:"app,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Machines  int    `json:"machines"`       // that there are; of an app or a namespace: that are not started
	Bytes     int64  `json:"bytes,omitzero"` // of configs of machines that are not started
}

// GPU is one device. Its number is its place among those of its worker.
type GPU struct {
	Kind   string `json:"kind"`
	Free   int64  `json:"free_milli"`           // thousandths that are neither granted nor held; 0 while Health stands against it
	ID     string `json:"id,omitempty"`         // by which its host knows it for ever; "": it is only counted
	Node   string `json:"node,omitempty"`       // as the kernel knows it: one of another ID and this node is this one
	Model  string `json:"model,omitempty"`      // as its vendor says it
	Memory int64  `json:"memory_mib,omitempty"` // of its own; 0: not known
	Health string `json:"health,omitempty"`     // why it is granted to nobody; "": nothing stands against it
}

// Text says in words which device it is, and how it is.
func (g *GPU) Text() string {
	parts := []string{g.Kind}
	if g.Model != "" {
		parts = append(parts, g.Model)
	}
	if g.Memory > 0 {
		parts = append(parts, strconv.FormatInt(g.Memory, 10)+" MiB")
	}
	if g.Health != "" {
		return strings.Join(parts, ", ") + ": " + g.Health
	}
	return strings.Join(parts, ", ")
}

// Evictable is what the machines of one rank occupy on a worker (rank: machine.Scheduling.Rank).
type Evictable struct {
	Rank      int       `json:"rank"`
	Resources Resources `json:"resources"`
	Machines  int       `json:"machines"`
}

// Attribute gives an attribute of the worker by its name. "worker", "region" and "state" are built in, and cannot be
// set to something else.
func (r *Record) Attribute(name string) (Value, bool) {
	switch name {
	case "worker":
		return Text(string(r.Worker)), true
	case "region":
		return Text(string(r.Region)), true
	case "state":
		return Text(string(r.State)), true
	}
	v, ok := r.Attributes[name]
	return v, ok
}

// Free gives what is neither granted nor held.
func (r Record) Free() Resources { return r.Capacity.Sub(r.Used) }

// Newer says whether r replaces o: the order is (incarnation, version), never a clock.
func (r Record) Newer(o Record) bool {
	if r.Incarnation != o.Incarnation {
		return r.Incarnation > o.Incarnation
	}
	return r.Version > o.Version
}

// View is the fleet as somebody last heard of it. It is a value: readers never see it change.
type View struct {
	Workers []Record  `json:"workers"` // in the order of Worker
	At      time.Time `json:"at"`
}
