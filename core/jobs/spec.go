package jobs

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of one job.
const (
	MaxTasks   = 1_000_000
	MaxIndex   = 1<<24 - 1
	MaxRetries = 1000
	MaxTimeout = 30 * 24 * time.Hour
	maxText    = 64 << 10 // bytes of command and environment together
)

// Spec is the specification of a job. Its JSON is the API's.
type Spec struct {
	App     string            `json:"app"`
	Name    string            `json:"name,omitempty"`
	Command []string          `json:"command"`
	Image   string            `json:"image,omitempty"` // "": Command is a program of the worker's host
	Env     map[string]string `json:"env,omitempty"`
	First   int               `json:"first,omitempty"` // index of the first task
	Last    int               `json:"last,omitempty"`  // index of the last; both 0: one task
	// Array has the indices if they are not all from First to Last. Both then follow from it.
	Array    Array  `json:"array,omitzero"`
	AtOnce   int    `json:"at_once,omitempty"` // how many of its tasks run at once at most; 0: as many as there is room for
	CPUKind  string `json:"cpu_kind,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	CPUMilli int    `json:"cpu_milli,omitempty"` // thousandths of a core, instead of CPUs
	MemoryMB int    `json:"memory_mb,omitempty"`
	GPUs     int    `json:"gpus,omitempty"`     // whole GPUs
	GPUKind  string `json:"gpu_kind,omitempty"` // "": any
	Retries  int    `json:"retries,omitempty"`  // times a failed task is run again
	// if more tasks than this fail, the rest are cancelled; nil: never
	MaxFails   *int     `json:"max_fails,omitempty"`
	TimeoutMS  int64    `json:"timeout_ms,omitempty"`  // of one attempt; 0: none
	Warning    Warning  `json:"warning,omitzero"`      // before TimeoutMS is over
	EstimateMS int64    `json:"estimate_ms,omitempty"` // of one task; 0: learned from the tasks that finish
	Class      Class    `json:"class,omitempty"`       // "": by the estimate
	Priority   Priority `json:"priority,omitempty"`
	// Scheduler is the architecture that finds workers for its tasks: NAME or NAME:N of package registry; "": the auction.
	Scheduler     string         `json:"scheduler,omitempty"`
	SchedulerFrom *SchedulerFrom `json:"scheduler_from,omitempty"` // nil: the job named Scheduler, or there is no default
	Band          machine.Band   `json:"band,omitempty"`           // its tasks' price and who may evict them; "" is batch

	// Namespace pays for the tasks, and Budget bounds how often tasks of its app are evicted. The gateway sets both,
	// whatever the client sends.
	Namespace string                  `json:"namespace,omitempty"`
	Budget    *machine.EvictionBudget `json:"eviction_budget,omitempty"`

	Owner Owner `json:"owner,omitzero"`
	Propagated
	Files
	TaskSecrets
	Wants
	Ordering
}

// Scheduling returns how the job's tasks rank among machines.
func (s *Spec) Scheduling() machine.Scheduling {
	return machine.Scheduling{Band: cmp.Or(s.Band, machine.BandBatch), EvictionBudget: s.Budget}
}

// Priority ranks jobs: a job comes before all jobs of a lower priority, whatever their work.
type Priority string

// The priorities, first to last; "" is Normal.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// headStart is the lead of one priority over the next, in microseconds: more than any difference in work.
const headStart = int64(1) << 60

func (p Priority) startRank() int64 {
	switch p {
	case High:
		return -headStart
	case Low:
		return headStart
	}
	return 0
}

// Settle fills in defaults, and refuses an invalid spec with an error of kind Invalid that says what to mend.
func (s *Spec) Settle() error {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeJob, format, args...)
	}
	s.settleShape()
	s.settleArray()
	if err := s.settleImage(); err != nil {
		return err
	}
	if err := cmp.Or(s.checkPropagated(), s.checkFiles(), s.settleSecrets(), s.checkWants(),
		s.Warning.check(s.TimeoutMS), s.checkClass(),
		s.checkOrdering(time.Duration(s.TimeoutMS)*time.Millisecond)); err != nil {
		return err
	}
	if err := s.checkText(); err != nil {
		return err
	}
	if err := s.settleScheduler(); err != nil {
		return err
	}
	switch n := s.Tasks(); {
	case len(s.Command) == 0 && s.Image == "" || len(s.Command) > 0 && s.Command[0] == "":
		return no("a job needs a command")
	case slices.ContainsFunc(s.Command, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return no("a command cannot hold a zero byte")
	case !machine.ValidName(s.App):
		return no("%.80q is no name of an app; use lower-case letters, digits, - and _", s.App)
	case s.Name != "" && !machine.ValidName(s.Name):
		return no("%.80q cannot name a job; use up to 63 lower-case letters, digits, -, _ and .", s.Name)
	case s.First < 0 || s.Last < s.First || s.Last > MaxIndex:
		return no("an array is from a first to a last index, both from 0 to %d; got %d-%d", MaxIndex, s.First, s.Last)
	case n > MaxTasks:
		return tooManyTasks(n)
	case s.AtOnce < 0:
		return no("at least one task runs at once, not %d", s.AtOnce)
	case s.CPUKind != machine.Shared && s.CPUKind != machine.Performance:
		return no("%.40q is no kind of CPU; use shared or performance", s.CPUKind)
	case s.CPUs != 0 && s.CPUMilli != 0:
		return no("a task's CPU is said in cpus (%d) or in cpu_milli (%d), not in both", s.CPUs, s.CPUMilli)
	case s.CPUMilli != 0 && (s.CPUMilli < machine.MinCPUMilli || s.CPUMilli > machine.MaxCPUMilli):
		return no("a task has %d to %d thousandths of a core, not %d", machine.MinCPUMilli, machine.MaxCPUMilli,
			s.CPUMilli)
	case s.CPUMilli == 0 && (s.CPUs < 1 || s.CPUs > machine.MaxCPUs):
		return no("a task has 1 to %d CPUs, not %d", machine.MaxCPUs, s.CPUs)
	case s.MemoryMB < machine.MinMemoryMB || s.MemoryMB > machine.MaxMemoryMB:
		return no("a task has %d to %d MiB of memory, not %d", machine.MinMemoryMB, machine.MaxMemoryMB, s.MemoryMB)
	case s.GPUs < 0 || s.GPUs > machine.MaxGPUs:
		return no("a task has 0 to %d GPUs, not %d", machine.MaxGPUs, s.GPUs)
	case s.GPUKind != "" && (s.GPUs == 0 || !machine.ValidName(s.GPUKind)):
		return no("a kind of GPU is a name such as a10, of at least one GPU; got %d of %.40q", s.GPUs, s.GPUKind)
	case s.Retries < 0 || s.Retries > MaxRetries:
		return no("a task is run again 0 to %d times, not %d", MaxRetries, s.Retries)
	case s.MaxFails != nil && *s.MaxFails < 0:
		return no("at least 0 tasks may fail, not %d", *s.MaxFails)
	case s.TimeoutMS < 0 || s.TimeoutMS > MaxTimeout.Milliseconds() || s.EstimateMS < 0 ||
		s.EstimateMS > MaxTimeout.Milliseconds():
		return no("a timeout and an estimate are from 0 to %s", MaxTimeout)
	case s.Priority != "" && s.Priority != High && s.Priority != Normal && s.Priority != Low:
		return no("%.40q is no priority; use high, normal or low", s.Priority)
	case s.Scheduling().Valid() != "":
		return no("%s", s.Scheduling().Valid())
	}
	return nil
}

// checkText refuses an environment that no process can be given, and a command and environment that are too large.
func (s *Spec) checkText() error {
	size, largest := 0, ""
	for _, a := range s.Command {
		size += len(a)
	}
	command := size
	for k, v := range s.Env {
		size += len(k) + len(v)
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fault.New(fault.Invalid, fault.CodeJob,
				"%.40q is no name of an environment variable with a value that a process can be given", k)
		}
		if d := len(k) + len(v) - len(largest) - len(s.Env[largest]); d > 0 || d == 0 && k < largest {
			largest = k
		}
	}
	switch n := len(largest) + len(s.Env[largest]); {
	case size <= maxText:
		return nil
	case n > command:
		return fault.New(fault.Invalid, fault.CodeJob, "command and environment have %d bytes, more than %d; the "+
			"largest variable is %.80q, with %d bytes: leave it out, or put it in a file", size, maxText, largest, n)
	}
	return fault.New(fault.Invalid, fault.CodeJob,
		"command and environment have %d bytes, more than %d; put them in a file", size, maxText)
}

// settleShape fills in defaults of the shape.
func (s *Spec) settleShape() {
	if s.CPUs == 0 && s.CPUMilli == 0 {
		s.CPUs = 1
	}
	if s.CPUKind == "" {
		s.CPUKind = machine.Shared
		if s.CPUMilli != 0 { // like a machine's
			s.CPUKind = machine.Performance
		}
	}
	if s.MemoryMB == 0 {
		s.MemoryMB = 256 * min(max(s.CPUs, 1), machine.MaxCPUs)
	}
}

// settleArray sets First and Last from Array, and Array only where they do not say all.
func (s *Spec) settleArray() {
	if s.Array.IsZero() {
		return
	}
	s.First, s.Last = s.Array.First(), s.Array.Last()
	if s.Array.Len() == s.Last-s.First+1 {
		s.Array = Array{}
	}
}

// Indices returns the indices of the job's tasks.
func (s *Spec) Indices() Array {
	if s.Array.IsZero() {
		return fullArray(s.First, s.Last)
	}
	return s.Array
}

// Tasks returns how many tasks the job has.
func (s *Spec) Tasks() int {
	if s.Array.IsZero() {
		return s.Last - s.First + 1
	}
	return s.Array.Len()
}

// Shape returns the resources that one task occupies.
func (s *Spec) Shape() cluster.Resources {
	return machine.Resources(&machine.Config{Guest: &machine.Guest{CPUKind: s.CPUKind, CPUs: s.CPUs,
		CPUMilli: s.CPUMilli, MemoryMB: s.MemoryMB, GPUs: s.GPUs, GPUKind: s.GPUKind}})
}

// Request returns the request that the judge judges one task by.
func (s *Spec) Request() placement.Request {
	r := placement.Request{App: s.App, Resources: s.Shape(), GPUKind: s.GPUKind}
	r.Scheduling.Require = s.conditions()
	if s.Owner.User != nil && s.Image == "" {
		r.UnixUser = s.Owner.User.Name
	}
	return r
}

// Terms is what a worker needs to know to run tasks of a job. All of a job's tasks share it: read only.
type Terms struct {
	Job     string
	App     string
	Command []string // empty: that of Image
	Image   string   `json:",omitempty"` // "": Command is a program of the host
	Env     []string // KEY=VALUE, sorted; without what differs from task to task
	Shape   cluster.Resources
	GPUKind string `json:",omitempty"` // of the GPUs in Shape; "": any
	Shared  bool   // its CPU is a share
	Timeout time.Duration
	Warning Warning `json:",omitzero"`

	Namespace  string
	Scheduling machine.Scheduling

	User       cluster.UnixUser `json:",omitzero"`  // that the tasks run as; zero: each has one of its own
	Propagated Propagated       `json:",omitzero"`  // set with User
	Owner      string           `json:",omitempty"` // Unix user that tasks count for; "": User
	Name       string           `json:",omitempty"` // of the job, for the names of files
	Files      Files            `json:",omitzero"`
	TaskSecrets

	require, prefer string // of the job's Wants, for shapes; no worker needs them
}

func (s *Spec) termsOf(id string) *Terms {
	t := &Terms{Job: id, App: s.App, Command: s.Command, Shape: s.Shape(), GPUKind: s.GPUKind,
		Shared:  s.CPUKind != machine.Performance,
		Timeout: time.Duration(s.TimeoutMS) * time.Millisecond, Warning: s.Warning, Namespace: s.Namespace,
		Scheduling: s.Scheduling(), Name: s.Name, Image: s.Image, Files: s.Files, TaskSecrets: s.TaskSecrets,
		require: conditionText(s.conditions()), prefer: conditionText(s.Prefer)}
	env := map[string]string{}
	if s.Image == "" { // an image has users and a PATH of its own
		env = map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"LANG": "C.UTF-8"}
		if s.Owner.User != nil {
			t.User, t.Propagated = *s.Owner.User, s.Propagated
		}
	} else if s.Owner.User != nil {
		t.Owner = s.Owner.User.Name
	}
	maps.Copy(env, s.Env)
	maps.Copy(env, map[string]string{"SOUK_APP": s.App, "SOUK_JOB": id, "SOUK_COUNT": strconv.Itoa(s.Tasks())})
	for _, own := range []string{"SOUK_WORKER", "SOUK_INDEX", "SOUK_ATTEMPT", "SOUK_EPOCH"} {
		delete(env, own)
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		t.Env = append(t.Env, k+"="+env[k])
	}
	return t
}

// account returns whom the tasks count for.
func (t *Terms) account() share.Account {
	return share.Account{Namespace: cmp.Or(t.Namespace, cluster.DefaultNamespace), Owner: cmp.Or(t.Owner, t.User.Name)}
}

// Environ returns the whole environment of one attempt.
func (t *Terms) Environ(l Life, worker string) []string {
	return append(slices.Clip(t.Env), "SOUK_WORKER="+worker, "SOUK_INDEX="+strconv.Itoa(l.Index),
		"SOUK_ATTEMPT="+strconv.Itoa(TryOf(l.Attempt)), "SOUK_EPOCH="+strconv.Itoa(EpochOf(l.Attempt)))
}
