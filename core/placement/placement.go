// Package placement decides whether a worker can take a request, and which of those that can is best. Judge is the
// only judge of feasibility in souk: quotes, grants, plans, explanations and simulations all call it.
package placement

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Request is what a buyer wants placed: one machine. It is data, so that it can be logged, replayed and explained.
type Request struct {
	App string `json:"app"`
	// chosen by the buyer beforehand, so that the request can be repeated after a lost answer
	Machine   string            `json:"machine"`
	Regions   []cluster.Region  `json:"regions,omitempty"` // empty or holding "any": everywhere; earlier is nearer
	Resources cluster.Resources `json:"resources"`
	Image     string            `json:"image,omitempty"`
	Volumes   []string          `json:"volumes,omitempty"` // must all be on the worker, and unattached
	// ports of the worker's host that it publishes (machine.Config.HostPorts); records do not show which are free, so
	// only a worker's quote does
	Publish []machine.Publish `json:"publish,omitempty"`
	// the machine is started at once, so it counts against the worker's start limit
	Start     bool   `json:"start"`
	Wakes     bool   `json:"wakes,omitempty"` // requests may wake it, so its worker promises it room while it sleeps
	Namespace string `json:"namespace,omitempty"`
	GPUKind   string `json:"gpu_kind,omitempty"` // "" is any
	// the name of the Unix user that it runs as; "": none. Whether the worker has the user only the worker knows
	UnixUser string `json:"unix_user,omitempty"`

	Scheduling machine.Scheduling `json:"scheduling,omitzero"`
	Fleet      Fleet              `json:"fleet,omitzero"`  // see Resolve
	Funds      *Funds             `json:"funds,omitempty"` // of its namespace; nil: the request is free
}

// AskFor sets what the request asks for from a config: its image, room, ports of the host, kind of GPU, and whether
// requests may wake it.
func (r *Request) AskFor(c *machine.Config) {
	r.Image, r.Resources, r.Publish, r.GPUKind = machine.FullName(c.Image), machine.Resources(c), c.HostPorts(), ""
	r.Wakes = c.Wakes()
	if c.Guest != nil {
		r.GPUKind = c.Guest.GPUKind
	}
}

// AskForRuntime adds the requirement of a worker that can run the config's image. Set Scheduling first.
func (r *Request) AskForRuntime(c *machine.Config) {
	if r.Image == machine.HostImage {
		return
	}
	able := cluster.Requirement{Attribute: cluster.ContainersAttribute, Op: cluster.Exists}
	if c.Runtime != "" {
		able.Attribute = cluster.RuntimeAttribute(c.Runtime)
	}
	r.Scheduling.Require = append(slices.Clone(r.Scheduling.Require), able)
}

// AskForUser adds the requirement of a worker that runs programs as the Unix user whose machine it is; nil: none. An
// image has users of its own. Set Image first.
func (r *Request) AskForUser(u *cluster.UnixUser) {
	if u != nil && r.Image == machine.HostImage {
		r.UnixUser = u.Name
	}
}

// Occupies returns what the machine occupies once it is made: only its disk if it is not started.
func (r *Request) Occupies() cluster.Resources {
	if r.Start {
		return r.Resources
	}
	return cluster.Resources{Disk: r.Resources.Disk}
}

// Fleet is what a request needs to know about workers other than the judged one. The buyer fills it in from its view
// (Resolve), so that one worker can be judged alone, and a verdict can be recomputed from the record.
type Fleet struct {
	// for each Scheduling.Affinity: the values of Within where its app or machine runs
	Affinity [][]cluster.Value `json:"affinity,omitempty"`
	Spread   []map[string]int  `json:"spread,omitempty"` // for each Scheduling.Spread: value -> machines of the app
}

// Verdict is Judge's answer. It lists every failing clause, not only the first.
type Verdict struct {
	Fits    bool             `json:"fits"`
	Never   bool             `json:"never,omitempty"` // would not fit even if the worker were empty and ready
	Failing []machine.Clause `json:"failing,omitempty"`
}

// Codes of clauses that are not a resource's name.
const (
	CodeRegion    = "region"
	CodeState     = "worker_state"
	CodeVolume    = "volume"
	CodeAttached  = "volume_attached"
	CodeStartRate = "start_rate"

	CodeRequirement    = "requirement"     // of the request, on the worker's attributes
	CodeWorkerRequires = "worker_requires" // of the worker, on the request's labels
	CodeReserved       = "reserved"
	CodeAffinity       = "affinity"
	CodeAntiAffinity   = "anti_affinity"
	CodeSpread         = "spread"
	CodeHeadroom       = "headroom"
	CodeGPUKind        = "gpu_kind"
	CodeGPUDevice      = "gpu_device" // there is enough GPU, but not on suitable devices
	CodeMachines       = "machines"   // the worker has reached its bound of machines
	CodeUnixUser       = "unix_user"  // the worker runs nothing as this Unix user, or has no such user
	CodeDirectory      = "directory"  // the worker lacks the directory, or the user may not enter it there
	CodePromised       = "promised"   // the worker has promised all it may to machines that requests wake

	// Records do not show these: only the worker knows them, and reports them when it is asked.
	CodePort    = "port"    // of the host, taken by another machine, or by a program that listens
	CodeNetwork = "network" // the worker has or allows no such network
)

// Judge says whether worker w, as its record stands, can take request r, and if not every reason why. It has a verdict
// for any request and any record. It reads no clock: the caller decides whether a record is too old.
func Judge(r Request, w cluster.Record) Verdict { return JudgeAt(&r, &w) }

// JudgeAt is Judge without copying its arguments, for callers that judge many workers. It changes neither.
func JudgeAt(r *Request, w *cluster.Record) Verdict {
	var j judging
	j.judgeWorker(r, w)
	j.Fits = !j.refused
	return j.Verdict
}

// FitsAt is JudgeAt for callers that need no reasons: it checks the same clauses in the same order, up to the first
// that fails.
func FitsAt(r *Request, w *cluster.Record) bool {
	j := judging{brief: true}
	j.judgeWorker(r, w)
	return !j.refused
}

// judging is a verdict in the making.
type judging struct {
	Verdict
	brief   bool // stop without reasons
	refused bool
}

// refuseClause notes that a clause fails, and reports whether its text is wanted.
func (j *judging) refuseClause() bool {
	j.refused = true
	return !j.brief
}

// addRefusal adds the text of a clause that failed; never: it would fail even if the worker were empty and ready.
func (j *judging) addRefusal(never bool, code, wanted, had string) {
	j.Failing = append(j.Failing, machine.Clause{Code: code, Wanted: wanted, Had: had})
	j.Never = j.Never || never
}

func (j *judging) judgeWorker(r *Request, w *cluster.Record) {
	if w.State != cluster.Ready && j.refuseClause() {
		had := string(w.State)
		if w.State == w.Cordon.State() {
			had = w.Cordon.Text()
		}
		j.addRefusal(false, CodeState, string(cluster.Ready), had)
	}
	if len(r.Regions) > 0 && regionNearness(r.Regions, w.Region) < 0 && j.refuseClause() {
		j.addRefusal(true, CodeRegion, RegionText(r.Regions), string(w.Region))
	}
	for _, id := range r.Volumes {
		switch holder, here := w.Volumes[id]; {
		case !here && j.refuseClause():
			j.addRefusal(true, CodeVolume, id, "not on this worker")
		case here && holder != "" && holder != r.Machine && j.refuseClause():
			j.addRefusal(false, CodeAttached, id+" free", "attached to "+holder)
		}
	}
	if r.Start && w.MaxStarting > 0 && w.Starting >= w.MaxStarting && j.refuseClause() {
		j.addRefusal(false, CodeStartRate, "fewer than "+strconv.Itoa(w.MaxStarting)+" starting",
			strconv.Itoa(w.Starting)+
				" starting")
	}
	judgeFull(r, w, j)
	judgeResources(r, w, j)
	judgePromises(r, w, j)
	if j.brief && j.refused {
		return // the rest is about texts
	}
	judgeGPUs(r, w, j)
	judgeAttributes(r, w, j)
	judgeUnixUser(r, w, j)
	judgeNeighbours(r, w, j)
	judgeFunds(r, j)
}

// fitsBoth reports whether there is room for both want and keep in the built-in dimensions.
func fitsBoth(want, keep *cluster.Resources, w *cluster.Record) bool {
	c, u := &w.Capacity, &w.Used
	in := func(want, keep, free int64) bool { return want >= 0 && want <= cluster.MaxAmount && want+keep <= free }
	return in(want.CPU, keep.CPU, c.CPU-u.CPU) && in(want.Memory, keep.Memory, c.Memory-u.Memory) &&
		in(want.Disk, keep.Disk, c.Disk-u.Disk) &&
		in(want.Ports, keep.Ports, c.Ports-u.Ports) && in(want.GPU, keep.GPU, c.GPU-u.GPU)
}

func judgeResources(r *Request, w *cluster.Record, out *judging) {
	want := &r.Resources
	var keep cluster.Resources
	if h := &w.Headroom; !h.IsZero() && h.Valid() && !asLarge(*want, *h) { // invalid headroom keeps nothing free
		keep = *h
	}
	if len(keep.Named) == 0 && len(want.Named) == 0 && fitsBoth(want, &keep, w) {
		return // the common case, without making the list of dimensions
	}
	free := w.Free()
	for _, d := range want.Dims() {
		switch {
		case d.Amount >= 0 && d.Amount <= free.Get(d.Name) &&
			(d.Amount == 0 || d.Amount+keep.Get(d.Name) <= free.Get(d.Name)) && d.Amount <= cluster.MaxAmount:
			// it fits
		case !out.refuseClause():
			return
		case d.Amount < 0 || d.Amount > cluster.MaxAmount:
			out.addRefusal(true, d.Name, "an amount from 0 to "+strconv.FormatInt(cluster.MaxAmount, 10),
				strconv.FormatInt(d.Amount, 10))
		case d.Amount > free.Get(d.Name):
			had := d.Format(free.Get(d.Name)) + " free of " + d.Format(w.Capacity.Get(d.Name))
			if d.Name == "gpu" {
				had += sickText(w, r.GPUKind)
			}
			out.addRefusal(d.Amount+keep.Get(d.Name) > w.Capacity.Get(d.Name), d.Name, d.Format(d.Amount), had)
		default:
			out.addRefusal(d.Amount+keep.Get(d.Name) > w.Capacity.Get(d.Name), CodeHeadroom, d.Name+" "+
				d.Format(d.Amount)+
				" beside "+d.Format(keep.Get(d.Name))+
				" kept for larger requests", d.Format(free.Get(d.Name))+" free")
		}
	}
}

// Nearness returns the place of w's region in the request's list: 0 is nearest, -1 not accepted. "any" stands for
// every region not named before it.
func Nearness(r Request, w cluster.Record) int {
	if len(r.Regions) == 0 {
		return 0
	}
	return regionNearness(r.Regions, w.Region)
}

func regionNearness(wanted []cluster.Region, is cluster.Region) int {
	if i := slices.Index(wanted, is); i >= 0 {
		return i
	}
	return slices.Index(wanted, cluster.Region("any"))
}

// RegionText prints a region expression as users write it: "iad,dfw"; "any" if there is none.
func RegionText(rs []cluster.Region) string {
	if len(rs) == 0 {
		return "any"
	}
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = string(r)
	}
	return strings.Join(parts, ",")
}

// ClauseText prints a failing clause as part of a sentence: "memory: wanted 512 MiB, had 100 MiB free of 900 MiB".
func ClauseText(c machine.Clause) string {
	c = InUnits(c)
	switch c.Code {
	case CodeState:
		return "the worker is " + cmp.Or(c.Had, "of no state")
	case CodeVolume:
		return "volume " + c.Wanted + " is " + c.Had
	case CodeAttached:
		return "volume " + strings.TrimSuffix(c.Wanted, " free") + " is " + c.Had
	case CodeUnixUser:
		return "Unix user " + c.Wanted + ": " + c.Had
	case CodeDirectory:
		return "directory " + c.Wanted + ": " + c.Had
	case CodePort:
		return "port " + strings.TrimSuffix(c.Wanted, " free") + " is not free: there is " + c.Had
	}
	return c.Code + ": wanted " + c.Wanted + ", had " + c.Had
}

// InUnits returns a clause with amounts of CPU and GPU in the units of a request: "1", not "1000m".
func InUnits(c machine.Clause) machine.Clause {
	named := strings.HasPrefix(c.Code, machine.GPUKindPrefix)
	switch {
	case c.Code == "cpu", c.Code == "gpu", c.Code == CodeGPUDevice, c.Code == CodeHeadroom, c.Code == CodePromised,
		named:
		c.Wanted, c.Had = wholeUnits(c.Wanted, named), wholeUnits(c.Had, named)
	}
	return c
}

// wholeUnits replaces thousandths in a text, "1000m" or, if bare, "1000".
func wholeUnits(text string, bare bool) string {
	words := strings.Fields(text)
	for i, w := range words {
		digits, milli := strings.CutSuffix(w, "m")
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && (milli || bare) {
			words[i] = strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
		}
	}
	return strings.Join(words, " ")
}

// VerdictText prints every failing clause of v in one line, or "fits".
func VerdictText(v Verdict) string {
	if v.Fits {
		return "fits"
	}
	parts := make([]string, len(v.Failing))
	for i, c := range v.Failing {
		parts[i] = ClauseText(c)
	}
	return strings.Join(parts, "; ")
}
