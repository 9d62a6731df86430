package sim

import (
	"strconv"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
)

// deciders is which scheduler decides on a job, if decisions take time.
type deciders uint8

const (
	atBuyers   deciders = iota // the job's buyer
	inOnePlace                 // one scheduler, which takes the slowest class's time for every job
	multiPath                  // one scheduler, whose time depends on the class
	longInOne                  // one scheduler for the long jobs, the buyer for the others
)

// simulation is what only the simulator needs of an architecture.
type simulation struct {
	decides deciders
	typical []int // values of N for a frontier
}

// simulations lists all architectures of package registry by name.
func simulations() map[string]simulation {
	return map[string]simulation{
		"market":         {atBuyers, []int{1, 3, 10, 30}},
		"random":         {atBuyers, nil},
		"per-task":       {atBuyers, nil},
		"batch":          {atBuyers, nil},
		"sparrow":        {atBuyers, []int{2, 4, 8, 16}},
		"sparrow-cancel": {atBuyers, []int{2, 4, 8, 16}},
		"hawk":           {longInOne, []int{1, 10, 40}},
		"eagle":          {longInOne, []int{10, 20, 80, 320}},
		"pigeon":         {atBuyers, []int{25, 100, 400}},
		"tarcil":         {atBuyers, []int{8, 32, 128}},
		"apollo":         {atBuyers, []int{1, 10, 60}},
		"omega":          {atBuyers, []int{1, 100, 1000}},
		"omega-gang":     {atBuyers, nil},
		"mesos":          {atBuyers, []int{1, 5, 20}},
		"borg":           {inOnePlace, []int{1, 10, 100}},
		"yarn":           {atBuyers, nil},
		"mercury":        {longInOne, nil},
		"condor":         {atBuyers, nil},
		"firmament":      {inOnePlace, nil},
		"quincy":         {inOnePlace, nil},
		"coco":           {inOnePlace, nil},
		"clwl":           {inOnePlace, nil},
		"dlwl":           {atBuyers, []int{2, 8, 32, 128}},
		"fifo":           {multiPath, nil},
		"sjf":            {multiPath, nil},
		"srtf":           {multiPath, nil},
		"monolithic":     {inOnePlace, nil},
		"multipath":      {multiPath, nil},
	}
}

// Frontier expands names with the values of their parameters, to show the effect of more messages.
func Frontier(names []string) []string {
	var out []string
	for _, name := range names {
		a, n, err := registry.Parse(name)
		typical := simulations()[a.Name].typical
		if err != nil || n > 0 || len(typical) == 0 {
			out = append(out, name)
			continue
		}
		for _, n := range typical {
			out = append(out, a.Name+":"+strconv.Itoa(n))
		}
	}
	return out
}

// decideBy returns the function that assigns a job's decider; nil: its buyer.
func (d deciders) decideBy() func(*scheduler.Job) int32 {
	switch d {
	case inOnePlace, multiPath:
		return func(*scheduler.Job) int32 { return 0 }
	case longInOne:
		return func(j *scheduler.Job) int32 {
			if j.Long {
				return -1
			}
			return j.Buyer
		}
	}
	return nil
}
