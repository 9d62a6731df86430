package decision

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// StepKind is one way to make a request fit.
type StepKind string

// The kinds. The first nine change the request, the others the fleet.
const (
	Less        StepKind = "less"         // ask for less of Dim: To instead of From
	DropRequire StepKind = "drop_require" // leave out Scheduling.Require[Index]
	AddRegion   StepKind = "add_region"   // also accept the region Name
	Tolerate    StepKind = "tolerate"     // tolerate the reservation Name
	SetLabel    StepKind = "set_label"    // set the label Name = Value, as the worker requires
	DropNear    StepKind = "drop_affinity"
	DropSpread  StepKind = "drop_spread"
	AnyGPU      StepKind = "any_gpu_kind"
	NoWake      StepKind = "no_autostart" // no autostart: requests do not wake the machine
	Evict       StepKind = "evict"        // evict machines there that rank below Rank + 1
	Uncordon    StepKind = "reopen"       // uncordon the worker
	Wait        StepKind = "wait"         // until fewer machines start there
)

// Step is one part of a change. Which fields are set follows from Kind.
type Step struct {
	Kind  StepKind `json:"kind"`
	Dim   string   `json:"dim,omitempty"`
	From  int64    `json:"from,omitempty"`
	To    int64    `json:"to,omitempty"`
	Each  int64    `json:"each,omitempty"` // the unit of a dimension that is asked for in whole units; 0: any amount
	Index int      `json:"index,omitempty"`
	Name  string   `json:"name,omitempty"`
	Value string   `json:"value,omitempty"`

	Rank     int               `json:"rank,omitempty"`     // of Evict: the highest rank that is evicted
	Machines int               `json:"machines,omitempty"` // of Evict: the most machines that are evicted
	Frees    cluster.Resources `json:"frees,omitzero"`     // of Evict: the resources it frees
}

// Change is a set of steps that makes a request fit on one worker: after Apply, the judge accepts it there.
type Change struct {
	Worker cluster.WorkerID `json:"worker"`
	Steps  []Step           `json:"steps"`
	Cost   float64          `json:"cost"` // smaller is better; only for ordering
	Text   string           `json:"text"` // one sentence
	Also   int              `json:"also"` // how many other workers the same change would work for
}

// Apply returns the request and the worker as they are after the change.
func (c *Change) Apply(r placement.Request, w cluster.Record) (placement.Request, cluster.Record) {
	r.Scheduling = cloneScheduling(r.Scheduling)
	r.Resources = r.Resources.Add(cluster.Resources{}) // a map of its own
	r.Regions = slices.Clone(r.Regions)
	r.Fleet.Affinity, r.Fleet.Spread = slices.Clone(r.Fleet.Affinity), slices.Clone(r.Fleet.Spread)
	drop := map[StepKind][]int{}
	for i := range c.Steps {
		s := &c.Steps[i]
		switch s.Kind {
		case Less:
			r.Resources = withDimension(r.Resources, s.Dim, s.To)
		case DropRequire, DropNear, DropSpread:
			drop[s.Kind] = append(drop[s.Kind], s.Index)
		case AddRegion:
			r.Regions = append(r.Regions, cluster.Region(s.Name))
		case Tolerate:
			r.Scheduling.Tolerate = append(r.Scheduling.Tolerate, s.Name)
		case SetLabel:
			r.Scheduling.Labels[s.Name] = cluster.ParseValue(s.Value)
		case AnyGPU:
			r.GPUKind = ""
		case NoWake:
			r.Wakes = false
		case Evict:
			r.Scheduling.Band = r.Scheduling.BandName()
			w.Used = w.Used.Sub(s.Frees)
		case Uncordon:
			w.State = cluster.Ready
		case Wait:
			w.Starting = max(0, w.MaxStarting-1)
		}
	}
	r.Scheduling.Require = withoutIndices(r.Scheduling.Require, drop[DropRequire])
	r.Scheduling.Affinity, r.Fleet.Affinity = withoutIndices(r.Scheduling.Affinity, drop[DropNear]),
		withoutIndices(r.Fleet.Affinity, drop[DropNear])
	r.Scheduling.Spread, r.Fleet.Spread = withoutIndices(r.Scheduling.Spread, drop[DropSpread]),
		withoutIndices(r.Fleet.Spread, drop[DropSpread])
	return r, w
}

func cloneScheduling(s machine.Scheduling) machine.Scheduling {
	s.Tolerate = slices.Clone(s.Tolerate)
	labels := make(cluster.Attributes, len(s.Labels)+1)
	for k, v := range s.Labels {
		labels[k] = v
	}
	s.Labels = labels
	return s
}

func withoutIndices[T any](list []T, indices []int) []T {
	if len(indices) == 0 {
		return list
	}
	out := make([]T, 0, len(list))
	for i, v := range list {
		if !slices.Contains(indices, i) {
			out = append(out, v)
		}
	}
	return out
}

// withDimension returns r with one dimension changed.
func withDimension(r cluster.Resources, dim string, to int64) cluster.Resources {
	by := to - r.Get(dim)
	switch dim {
	case "cpu":
		return r.Add(cluster.Resources{CPU: by})
	case "memory":
		return r.Add(cluster.Resources{Memory: by})
	case "disk":
		return r.Add(cluster.Resources{Disk: by})
	case "ports":
		return r.Add(cluster.Resources{Ports: by})
	case "gpu":
		return r.Add(cluster.Resources{GPU: by})
	}
	return r.Add(cluster.Resources{Named: map[string]int64{dim: by}})
}

// changeSentence describes the change in one sentence.
func (c *Change) changeSentence(r *placement.Request) string {
	var parts []string
	fewer := slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Kind == Less && s.Dim == "gpu" })
	for i := range c.Steps {
		if s := &c.Steps[i]; fewer && s.Kind == Less && s.Dim == machine.GPUKindPrefix+r.GPUKind {
			continue // the step on gpu covers it
		}
		parts = append(parts, c.Steps[i].stepSentence(r, c.Worker))
	}
	return strings.Join(parts, ", and ") + ": then it fits on " + string(c.Worker)
}

func (s *Step) stepSentence(r *placement.Request, w cluster.WorkerID) string {
	switch s.Kind {
	case Less:
		if s.Dim == "cpu" && s.Each > 0 && s.From%s.Each == 0 {
			return fmt.Sprintf("ask for --cpus %d instead of %d", s.To/s.Each, s.From/s.Each)
		}
		if s.Dim == "cpu" {
			return fmt.Sprintf("ask for --cpu %s instead of %s", formatAmount(s.Dim, s.To), formatAmount(s.Dim, s.From))
		}
		return fmt.Sprintf("ask for less %s: %s instead of %s (%s less)", dimWord(s.Dim), formatAmount(s.Dim, s.To),
			formatAmount(s.Dim, s.From), formatAmount(s.Dim, s.From-s.To))
	case DropRequire:
		return fmt.Sprintf("drop the requirement %q", r.Scheduling.Require[s.Index].String())
	case AddRegion:
		return fmt.Sprintf("allow region %s too", s.Name)
	case Tolerate:
		return fmt.Sprintf("tolerate the reservation %s", s.Name)
	case SetLabel:
		return fmt.Sprintf("give it the label %s=%s, which %s requires", s.Name, s.Value, w)
	case DropNear:
		return "drop the " + nearText(&r.Scheduling.Affinity[s.Index])
	case DropSpread:
		return fmt.Sprintf("let more than %d more be on one %s", r.Scheduling.Spread[s.Index].MaxSkew,
			r.Scheduling.Spread[s.Index].Attribute)
	case AnyGPU:
		return "take any kind of GPU instead of " + r.GPUKind
	case NoWake:
		return "start it yourself, and not for requests (autostart false)"
	case Evict:
		band := ""
		if !r.Scheduling.MayPreempt() {
			band = fmt.Sprintf(" (say band %s, so that it may)", r.Scheduling.BandName())
		}
		return fmt.Sprintf("evict up to %s of lower rank from %s, which frees %s%s", countNoun(s.Machines, "machine"),
			w,
			s.Frees, band)
	case Uncordon:
		return fmt.Sprintf("open %s, which is %s", w, s.Name)
	case Wait:
		return fmt.Sprintf("wait until fewer machines start on %s", w)
	}
	return string(s.Kind)
}

// nearText describes an affinity: "affinity to app web (same rack)".
func nearText(a *machine.Affinity) string {
	kind, who := "affinity to ", "app "+a.App
	if a.Anti {
		kind = "anti-affinity to "
	}
	if a.Machine != "" {
		who = "machine " + a.Machine
	}
	if a.Within != "" {
		who += " (same " + a.Within + ")"
	}
	return kind + who
}

// formatAmount prints an amount of a dimension with its unit: "512 MiB", "0.25", "3".
func formatAmount(dim string, n int64) string {
	switch {
	case dim == "cpu", dim == "gpu", strings.HasPrefix(dim, machine.GPUKindPrefix):
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	case dim == "memory", dim == "disk":
		return strconv.FormatInt(n, 10) + " MiB"
	}
	return strconv.FormatInt(n, 10)
}

func dimWord(dim string) string {
	switch dim {
	case "cpu":
		return "CPU"
	case "gpu":
		return "GPU"
	}
	return dim
}
