package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// DrainPlan says where a worker's machines would go if it were drained now, and lists its tasks and volumes.
type DrainPlan struct {
	Worker cluster.WorkerID `json:"worker"`
	Moves  []DrainMove      `json:"moves"`
	Tasks  []DrainTasks     `json:"tasks"` // that run there: a drain waits for them, or ends them for their queue
	// ids of unattached volumes there, which stay with their data
	Volumes []string `json:"volumes"`
}

// Running counts the tasks.
func (p *DrainPlan) Running() (n int) {
	for _, t := range p.Tasks {
		n += t.Running
	}
	return n
}

// DrainTasks is how many tasks of one job run on a worker.
type DrainTasks struct {
	App     string `json:"app"` // "": unknown yet, since the worker has just started
	Job     string `json:"job"`
	Name    string `json:"name,omitempty"` // the job's name, if the answering member has the job
	Running int    `json:"running"`
}

// Fate is what happens to a machine when its worker is drained.
type Fate string

// The fates.
const (
	FateMoves Fate = "moves" // it is made again elsewhere
	FateStays Fate = "stays" // something ties it to the worker
	FateStuck Fate = "stuck" // no other worker takes it now
	FateAnew  Fate = "anew"  // its service makes another elsewhere, and then removes this one
	FateWaits Fate = "waits" // an operation on it must end first
)

// DrainMove is one machine of a DrainPlan.
type DrainMove struct {
	App     string        `json:"app"`
	Machine string        `json:"machine"`
	Name    string        `json:"name"`
	State   machine.State `json:"state"`
	Fate    Fate          `json:"fate"`
	To      string        `json:"to,omitempty"`
	Reason  string        `json:"reason"`
}

// WorkerCordon is the request to cordon a worker: by whom, why, and for how long.
type WorkerCordon struct {
	Owner  string  `json:"owner"`
	Reason string  `json:"reason"`
	TTL    float64 `json:"ttl,omitempty"` // seconds; 0: until ended by hand
	Drain  bool    `json:"drain,omitempty"`
	// with drain: the tasks that run there are ended, and go back to their queues
	EndTasks bool `json:"end_tasks,omitempty"`
}

// MemberRemoved is the answer to the removal of a member.
type MemberRemoved struct {
	OK        bool               `json:"ok"`
	Forgotten []ForgottenMachine `json:"forgotten"` // the machines that it had reported
	Tokens    []Token            `json:"tokens"`    // valid tokens that ended with it
}

// ForgottenMachine is a machine of a member that was removed.
type ForgottenMachine struct {
	App  string `json:"app"`
	Name string `json:"name,omitempty"`
	ID   string `json:"id"`
}

// RemovalList lists the members that were removed.
type RemovalList struct {
	Removed []cluster.Removal `json:"removed"`
}

// WorkerList is the fleet, with the workers that do not answer.
type WorkerList struct {
	Workers     []cluster.Record    `json:"workers"`
	Unreachable []UnreachableWorker `json:"unreachable"`
}

// UnreachableWorker is a worker that does not answer, and why.
type UnreachableWorker struct {
	Worker cluster.WorkerID `json:"worker"`
	Error  string           `json:"error"`
}

// MemberList lists the members of the cluster as one of them knows them.
type MemberList struct {
	Members []cluster.Member `json:"members"` // none: this process is alone
}

// DoorList lists where the members serve the API for other hosts. Any of them answers for all.
type DoorList struct {
	Doors []cluster.Door `json:"doors"`
	Mark  string         `json:"mark"` // of this list: the header Souk-Doors has another one when it has changed
}

// HealthFinding is one check of the cluster's health, and its result.
type HealthFinding struct {
	Member cluster.WorkerID `json:"member"`
	Check  string           `json:"check"` // member, drift, registry, clock, certificate, staleness, cordon, removed
	OK     bool             `json:"ok"`
	Have   string           `json:"have"`
	Advice string           `json:"advice,omitempty"`
}

// Health is the health of a cluster as one member finds it.
type Health struct {
	Member   cluster.WorkerID `json:"member,omitempty"` // the member that checked; none: this souk is alone
	At       time.Time        `json:"at"`
	OK       bool             `json:"ok"`
	Findings []HealthFinding  `json:"findings"`
}

// WorkerUsage is one worker's capacity, usage and activity.
type WorkerUsage struct {
	Worker cluster.WorkerID    `json:"worker"`
	Member cluster.MemberState `json:"member,omitempty"` // its member's state; none: this souk is alone
	// the age of what this member knows of it
	AgeMS  float64         `json:"age_ms"`
	Record *cluster.Record `json:"record,omitempty"` // none: it is unreachable
	Starts uint64          `json:"starts"`           // machines it has brought up since it started
	Stuck  int             `json:"stuck"`            // operations that make no progress
	// the usage of each running machine and task, if requested and measured
	Use []machine.Use `json:"use,omitempty"`
	// the usage of everything on the worker's host; none: not measured
	Host *machine.HostUse `json:"host,omitempty"`
}

// UsageList is the usage of all workers at one moment.
type UsageList struct {
	At      time.Time     `json:"at"`
	Workers []WorkerUsage `json:"workers"`
	Proxy   *ProxyUsage   `json:"proxy,omitempty"` // the answering member's proxy; none: it has none
}

// ServerInfo describes a server.
type ServerInfo struct {
	cluster.Build
	Go      string    `json:"go"`
	Region  string    `json:"region"`
	Workers int       `json:"workers"`
	Started time.Time `json:"started"`
}

// Examinations lists what each worker found out about its host.
type Examinations struct {
	Workers []Examination `json:"workers"`
}

// Examination is what one worker found out about its host.
type Examination struct {
	Worker   cluster.WorkerID  `json:"worker"`
	Findings []cluster.Finding `json:"findings"`
}

// FleetView is the fleet as a buyer (broker) sees it.
type FleetView struct {
	At          time.Time           `json:"at"`
	Workers     []AgedRecord        `json:"workers"`
	Unreachable []UnreachableWorker `json:"unreachable"`
}

// AgedRecord is a worker's record and how old it is.
type AgedRecord struct {
	Age    float64        `json:"age_ms"`
	Record cluster.Record `json:"record"`
}

// LivesRequest says who decided, and why, that a member is the only valid one of all copies with its id.
type LivesRequest struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// ImageList lists the workers' images, and the workers that have no list: they do not answer, or keep no images.
type ImageList struct {
	Stores  []cluster.ImageStore `json:"stores"`
	Without []UnreachableWorker  `json:"without"`
}

// NewPull says which image to pull.
type NewPull struct {
	Image string `json:"image"` // a name, as "nginx:1.29", or one with a digest
}

// PullLine is a line of a pull's answer: the progress of a blob, or as the last line the image.
type PullLine struct {
	Progress *cluster.ImageProgress `json:"progress,omitempty"`
	Image    *cluster.StoredImage   `json:"image,omitempty"`
}

// LoadedImages lists the images that were in an archive.
type LoadedImages struct {
	Images []cluster.StoredImage `json:"images"`
}

// Freed says how much disk a removal freed.
type Freed struct {
	Bytes int64 `json:"bytes"`
}
