// Package cluster has the basic types of the fleet: workers, members, resources, attributes, claims and terms. They are
// plain values that need no other package to read, compare or add.
package cluster

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// WorkerID is a worker's permanent id: generated once, kept in its directory. Ids match exactly, never by prefix.
type WorkerID string

// Region is a place, as users name it: "local", "iad".
type Region string

// State says whether a worker takes new machines.
type State string

// The states of a worker.
const (
	Ready    State = "ready"    // takes grants
	Cordoned State = "cordoned" // keeps what it has, takes nothing new
	Draining State = "draining" // as cordoned, and its machines are moved away
)

// Record is a worker's report of itself, always written whole and only by that worker. It ages: other members may rank
// by it, but only the worker itself decides.
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
	Require    []Requirement `json:"require,omitempty"`    // conditions on a request's labels for the worker to take it
	Prefer     []Preference  `json:"prefer,omitempty"`     // weights on a request's labels
	Reserved   []string      `json:"reserved,omitempty"`   // a request must tolerate each of these
	// kept free for requests that are at least as large in one dimension
	Headroom Resources `json:"headroom,omitzero"`
	// the devices behind Capacity.GPU; empty: they are only counted
	GPUs      []GPU       `json:"gpus,omitempty"`
	Evictable []Evictable `json:"evictable,omitempty"` // what evictable ranks occupy, lowest rank first
	Cordon    *Cordon     `json:"cordon,omitempty"`    // why State is not ready; nil while it is
	Backlog   int64       `json:"backlog,omitempty"`   // milliseconds of work that waits here, estimated
	At        time.Time   `json:"at"`                  // when the worker said so

	Spending map[string]Spending `json:"spending,omitempty"` // what its machines spend, by namespace
	Full     []Full              `json:"full,omitempty"`     // apps and namespaces that are at their limit here

	Tasks  Resources `json:"tasks,omitzero"`   // of Used: what tasks occupy
	Wanted []Wanted  `json:"wanted,omitempty"` // what tasks are kept from, the oldest first

	// what sleeping machines that requests may wake would use beyond Used if all were woken
	Promised Resources `json:"promised,omitzero"`
	// the limit of Used plus Promised, in thousandths of Capacity; 0: no limit
	PromiseLimit int64 `json:"promise_limit_milli,omitempty"`
}

// SameButUse reports whether two records of a worker differ in nothing but what is used, and by whom.
func (r *Record) SameButUse(o *Record) bool {
	a := *r
	a.Used, a.Spending, a.Evictable, a.Backlog, a.Version, a.At = o.Used, o.Spending, o.Evictable, o.Backlog, o.Version,
		o.At
	a.Tasks, a.Wanted = o.Tasks, o.Wanted
	return reflect.DeepEqual(a, *o)
}

// Wanted is capacity that a worker keeps tasks from, as a gang waits for it.
type Wanted struct {
	Namespace string    `json:"namespace"`
	Gang      string    `json:"gang"` // its ID
	Resources Resources `json:"resources"`
	GPUKind   string    `json:"gpu_kind,omitempty"` // of the GPUs in Resources; "": any
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"` // unless it is wanted again
}

// MaxPromiseLimit bounds PromiseLimit.
const MaxPromiseLimit = 1000 * 1000

// Promisable returns the limit of Used plus Promised in a dimension. PromiseLimit must not be 0.
func (r *Record) Promisable(dim string) int64 {
	have, limit := r.Capacity.Get(dim), min(max(0, r.PromiseLimit), MaxPromiseLimit)
	return have/1000*limit + have%1000*limit/1000 // this order avoids overflow
}

// DefaultNamespace is the namespace of an app that names none.
const DefaultNamespace = "default"

// Full says that a worker has reached its limit of machines for an app, for a namespace, or if neither is named in
// total. It takes no more until some are over.
type Full struct {
	App       string `json:"app,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Machines  int    `json:"machines"`       // machines that exist; for an app or namespace: those not started
	Bytes     int64  `json:"bytes,omitzero"` // of configs of machines that are not started
}

// GPU is one device. Its number is its place among those of its worker.
type GPU struct {
	Kind   string `json:"kind"`
	Free   int64  `json:"free_milli"`           // thousandths neither granted nor held; 0 while Health is set
	ID     string `json:"id,omitempty"`         // the host's permanent id of it; "": it is only counted
	Node   string `json:"node,omitempty"`       // its device node: another ID with this node is the same device
	Model  string `json:"model,omitempty"`      // the vendor's name of it
	Memory int64  `json:"memory_mib,omitempty"` // its own memory; 0: unknown
	Health string `json:"health,omitempty"`     // why it is not granted; "": it is healthy
}

// Text describes the device and its health in words.
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

// Attribute returns an attribute of the worker by its name. "worker", "region" and "state" are built in, and cannot be
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

// Free returns what is neither granted nor held.
func (r Record) Free() Resources { return r.Capacity.Sub(r.Used) }

// Newer reports whether r replaces o: the order is (incarnation, version), never a clock.
func (r Record) Newer(o Record) bool {
	if r.Incarnation != o.Incarnation {
		return r.Incarnation > o.Incarnation
	}
	return r.Version > o.Version
}

// View is the fleet as a member knows it. It is a value: readers never see it change.
type View struct {
	Workers []Record  `json:"workers"` // in the order of Worker
	At      time.Time `json:"at"`
}
