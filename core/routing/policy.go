package routing

import (
	"time"

	"github.com/soukhq/souk/machine"
)

// Policy is a service's config of load and scaling.
type Policy struct {
	Requests  bool // load is requests in progress; else connections
	Soft      int  // load of one machine beyond which another is used, and woken; 0: none
	Hard      int  // load of one machine beyond which requests wait; 0: none
	Autostart bool // machines are started and resumed for requests
	Autostop  Autostop
	Min       int           // number of machines that autostop leaves up
	Max       int           // number of machines up at which no more are woken; 0: no bound
	IdleAfter time.Duration // how long a machine must be without load before autostop stops it
	// CreateUpTo is up to how many machines more are made for the load; 0: none are made.
	CreateUpTo int
	Warm       int // number of machines kept asleep in reserve, beyond those that are up; 0: none is made in reserve
}

// Autostop is what happens to a machine that has been idle for a while.
type Autostop uint8

// The values of Autostop.
const (
	StaysUp Autostop = iota
	IsStopped
	IsSuspended
)

// DefaultIdle is how long a machine must have been without load, by default.
const DefaultIdle = time.Minute

// PolicyOf returns the policy that a service's config asks for, with the API's defaults: autostart on, autostop off,
// connections, no limits.
func PolicyOf(s *machine.Service) Policy {
	p := Policy{Autostart: s.Autostart == nil || *s.Autostart, IdleAfter: DefaultIdle}
	if s.Autostop != nil {
		switch *s.Autostop {
		case "stop":
			p.Autostop = IsStopped
		case "suspend":
			p.Autostop = IsSuspended
		}
	}
	if c := s.Concurrency; c != nil {
		p.Requests, p.Soft, p.Hard = c.Type == "requests", max(0, c.SoftLimit), max(0, c.HardLimit)
	}
	if p.Hard > 0 && (p.Soft == 0 || p.Soft > p.Hard) {
		p.Soft = p.Hard
	}
	if s.MinMachinesRunning != nil {
		p.Min = max(0, *s.MinMachinesRunning)
	}
	if s.MaxMachinesRunning != nil {
		p.Max = max(0, *s.MaxMachinesRunning)
	}
	if s.CreateUpTo != nil {
		p.CreateUpTo = max(0, *s.CreateUpTo)
	}
	if s.Warm != nil {
		p.Warm = max(0, *s.Warm)
	}
	if s.AutostopAfter != nil && s.AutostopAfter.Duration > 0 {
		p.IdleAfter = s.AutostopAfter.Duration
	}
	return p
}

// PowerOf returns what a machine in a state can do for a request.
func PowerOf(s machine.State) Power {
	switch s {
	case machine.Started:
		return Up
	case machine.Created, machine.Stopped, machine.Suspended, machine.Stopping, machine.Suspending:
		return Asleep
	case machine.Creating, machine.Starting, machine.Restarting, machine.Updating, machine.Replacing:
		return Coming
	}
	return Gone
}

// slack is the factor, in hundredths, by which Needed plans for more than the load: otherwise a machine at its limit
// would be started and stopped all the time.
const slack = 125

// Needed returns how many machines a load takes, at least one and Min, so that none is filled to its soft limit.
func (p *Policy) Needed(load int) int {
	n := 1
	if p.Soft > 0 {
		n = max(n, (load*slack+100*p.Soft-1)/(100*p.Soft))
	}
	return max(n, p.Min)
}
