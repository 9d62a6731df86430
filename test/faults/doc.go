// Package faults runs a cluster of real souk agents on hosts of package netns, breaks it in one of several ways while
// clients launch and destroy machines through all its members, repairs it, and then checks that nothing was lost or
// done twice: with `souk doctor --invariants` over the history of the clients, and with the models of package history.
//
// A run is bounded in time. Its seed determines what it does, but not the exact timing, since the processes are real.
package faults

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// The faults. Each lasts for Options.For while clients are at work.
const (
	// agents are killed with SIGKILL, one after another, some with their reaper; each comes back
	Kill      = "kill"
	Partition = "partition" // the hosts are cut in two, both halves go on
	OneWay    = "oneway"    // a host no longer receives from some others; they do from it
	Loss      = "loss"      // each host loses 30 % of what it receives
	Delay     = "delay"     // what each host receives is 300 ms late
	Power     = "power"     // every process of every host is killed, machines too; all boot, another boot id
	DiskFull  = "diskfull"  // the disk of a member is full
	OldDisk   = "olddisk"   // a host dies, and comes back with a copy of its disk from the fault's begin

	Stall      = "stall"      // agents, reapers or both stand still (SIGSTOP) for 5 to 60 s, one member after another
	Reaper     = "reaper"     // reapers are killed with SIGKILL, one after another
	Flap       = "flap"       // the links of some hosts are cut and come back, each second
	Slow       = "slow"       // what each host receives is 500 ms late, and a fifth of it is lost
	Firewall   = "firewall"   // a member gossips but cannot be called; another every few seconds
	LostFile   = "lostfile"   // a file of a member's disk is gone when its agent starts again
	Exhaustion = "exhaustion" // a member's agent and reaper may open no more files
	// every process of some hosts is killed, and unsynced data on their disks is gone
	PowerLoss = "powerloss"
	Mixed     = "mixed" // half of the members run Options.Old
	Clone     = "clone" // a copy of a member's disk is brought up on another host, beside the member
	PIDs      = "pids"  // a member's agent, its reaper with machines, or both, can make no new process or thread
)

// All lists the faults.
func All() (names []string) {
	for _, s := range scenarios() {
		names = append(names, s.fault)
	}
	return names
}

// Extra is how many hosts a run needs besides its members' hosts: one for the copy of a member.
const Extra = 1

// Options say what a run is. Exe and Dir are needed.
type Options struct {
	Fault    string
	Seed     uint64
	Exe      string        // souk
	Old      string        // another build of souk; needed for Mixed
	Dir      string        // for this run only; contains the members' directories
	Nodes    int           // members; 0: 5
	Slots    int           // machines that fit on a member; 0: 24
	Clients  int           // at work at once; 0: 10
	For      time.Duration // how long the fault lasts; 0: 10 s
	Rate     float64       // launches a second by all clients together; 0: as many as possible
	Most     int           // most launches; 0: no bound
	Images   int           // percent of launches that use an image; the others use a host program
	Services int           // services besides, at most MaxServices
	Jobs     int           // jobs submitted besides, spread over the run, at most MaxJobs
	Log      io.Writer     // progress, a line each; nil: nowhere
	Flags    []string      // further flags of each agent
}

func (o *Options) settle() error {
	if !slices.Contains(All(), o.Fault) {
		return fmt.Errorf("there is no fault %q; there are %s", o.Fault, strings.Join(All(), ", "))
	}
	for _, d := range []struct {
		n  *int
		or int
	}{{&o.Nodes, 5}, {&o.Slots, 24}, {&o.Clients, 10}, {&o.Most, 1 << 30}} {
		if *d.n == 0 {
			*d.n = d.or
		}
	}
	if o.Fault == Mixed && o.Old == "" {
		return fmt.Errorf("two builds cannot be mixed: there is one")
	}
	if o.Images < 0 || o.Images > 100 {
		return fmt.Errorf("%d %% of the launches cannot be of an image", o.Images)
	}
	if o.Services < 0 || o.Services > MaxServices {
		return fmt.Errorf("%d services cannot be kept; %d at most", o.Services, MaxServices)
	}
	if o.Jobs < 0 || o.Jobs > MaxJobs {
		return fmt.Errorf("%d jobs cannot be submitted; %d at most", o.Jobs, MaxJobs)
	}
	if o.Nodes < 2 {
		return fmt.Errorf("a cluster of %d cannot be broken; 2 is the least", o.Nodes)
	}
	if o.For == 0 {
		o.For = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return nil
}

// Report is the result of a run.
type Report struct {
	Fault     string  `json:"fault"`
	Seed      uint64  `json:"seed"`
	Nodes     int     `json:"nodes"`
	FaultSecs float64 `json:"fault_seconds"`
	TookSecs  float64 `json:"seconds"`
	Launches  int     `json:"launches"`  // asked for
	Started   int     `json:"started"`   // acknowledged
	Refused   int     `json:"refused"`   // no room, or another definite failure
	Unsure    int     `json:"unsure"`    // never answered
	Repeated  int     `json:"repeated"`  // repeated after a lost answer
	During    int     `json:"during"`    // acknowledged while the fault lasted
	Smaller   int     `json:"smaller"`   // of During, by members on the smaller side of a partition
	Destroyed int     `json:"destroyed"` // acknowledged
	Holds     int     `json:"holds"`     // granted by a worker
	Leases    int     `json:"leases"`    // taken
	Whole     float64 `json:"whole_s"`   // seconds from the end of the fault until each member saw all others alive
	// until every call had its answer; clients go on for a second after the fault
	Answered float64 `json:"answered_s"`
	// until all members knew the same; checked once every call has its answer
	Agreed     float64  `json:"agreed_s"`
	Histories  int      `json:"histories"`               // histories of machines and workers that were checked
	Undecided  int      `json:"undecided"`               // those whose search took too long
	Violations []string `json:"violations"`              // sentences
	Images     int      `json:"images,omitempty"`        // percent of the launches that were of an image
	Containers int      `json:"containers"`              // machines whose container was seen
	Repeat     string   `json:"repeat"`                  // the command line that repeats the run
	Services   int      `json:"services,omitempty"`      // services besides
	Releases   int      `json:"releases,omitempty"`      // releases of those services
	Jobs       int      `json:"jobs,omitempty"`          // jobs that ended
	Tasks      int      `json:"tasks,omitempty"`         // of those jobs
	Attempts   int      `json:"attempts,omitempty"`      // of those tasks, as they noted themselves
	Away       int      `json:"away,omitempty"`          // tasks that ran at another member than where they were submitted
	Adopted    int      `json:"adopted,omitempty"`       // jobs that another member keeps in the end
	Replaced   int      `json:"replaced,omitempty"`      // results that were shown and replaced when two keepers merged
	Deaths     int      `json:"keeper_deaths,omitempty"` // how often a keeper of jobs with an heir was down
	Shown      float64  `json:"shown_s,omitempty"`       // the longest time until another member showed such a job
	Cancelled  int      `json:"cancelled,omitempty"`
	Lost       int      `json:"lost,omitempty"` // tasks that were lost so often that they count as failed
	// seconds from the end of the fault until all jobs had ended, which is looked for when every call has its answer
	JobsEnded float64 `json:"jobs_ended_s,omitempty"`
	// how many of Jobs had which scheduler, jobs.Auction among them
	Schedulers map[string]int `json:"schedulers,omitempty"`
	Commit     string         `json:"commit,omitempty"`
	Harness    string         `json:"harness,omitempty"` // why the run is void: the harness failed
	Kills      int            `json:"kills"`             // of agents, or hosts
	Answers    []string       `json:"odd_answers"`       // neither yes, nor no room, nor no answer; at most 5
}
