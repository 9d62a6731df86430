// Package defaults decides which scheduler finds workers for a job that names none: the one that is set for its namespace,
// else the one that is set for the cluster, else the auction.
package defaults

import (
	"fmt"
	"strings"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
)

// Row is what is set for the jobs of a namespace, or of the cluster, that name no scheduler. Its JSON is stored and shared.
type Row struct {
	Scheduler string `json:"scheduler,omitempty"` // NAME or NAME:N, jobs.Auction among them; "": none is set
	// Comparison is the comparison that runs, or else the last one that ran; nil: there was none
	Comparison *Comparison `json:"comparison,omitempty"`
}

// IsEmpty reports whether nothing is set.
func (r Row) IsEmpty() bool { return r == Row{} }

// maxName bounds the name of a scheduler that another member has set, which this build may not know.
const maxName = 64

// Check refuses a row that no member can have written. It accepts schedulers that this build does not know.
func (r Row) Check() error {
	if len(r.Scheduler) > maxName {
		return fault.New(fault.Invalid, scheduler.CodeScheduler, "a scheduler's name has %d bytes, more than %d",
			len(r.Scheduler), maxName)
	}
	if r.Comparison != nil {
		return r.Comparison.check()
	}
	return nil
}

// Running returns the comparison that runs; nil: none does.
func (r Row) Running() *Comparison {
	if c := r.Comparison; c != nil && c.Ended.IsZero() {
		return c
	}
	return nil
}

// Rows are the rows that decide about a job: the one of its namespace, and the cluster's.
type Rows struct{ Namespace, Cluster Row }

// Scheduler returns the scheduler of jobs that name none, and whose default it is: jobs.OfNamespace, jobs.OfCluster, or ""
// where none is set and the auction finds workers.
func (r Rows) Scheduler() (name, of string) {
	switch {
	case r.Namespace.Scheduler != "":
		return r.Namespace.Scheduler, jobs.OfNamespace
	case r.Cluster.Scheduler != "":
		return r.Cluster.Scheduler, jobs.OfCluster
	}
	return jobs.Auction, ""
}

// Parse validates NAME or NAME:N, in any case, as a job may name it, and returns it in lower case. The error is Invalid with
// scheduler.CodeScheduler.
func Parse(name string) (string, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	if err := jobs.CheckAuctionName(name); err != nil {
		return "", err
	}
	_, _, err := registry.Parse(name)
	return name, err
}

// Fill sets which scheduler runs a job, and where that is from. spec is settled, with its namespace; id is the job's, and
// named what the client named, "" for none. A default is no demand: where it does not suit the job, the auction runs the
// job, and spec.SchedulerFrom says why.
func Fill(spec *jobs.Spec, id, named string, rows Rows) {
	spec.SchedulerFrom = nil
	if named != "" {
		if spec.Scheduler == "" {
			spec.SchedulerFrom = &jobs.SchedulerFrom{Of: jobs.OfJob}
		}
		return
	}
	if c, of := rows.Running(); c != nil {
		c.fill(spec, id, of)
	} else if name, of := rows.Scheduler(); of != "" {
		fillDefault(spec, name, of)
	}
}

// fillDefault has a job run by a default, if that suits it, or else by the auction.
func fillDefault(spec *jobs.Spec, name, of string) {
	spec.SchedulerFrom = &jobs.SchedulerFrom{Of: of}
	if why := unsuitable(spec, name); why != "" {
		spec.SchedulerFrom.Why = fmt.Sprintf(why, name+", the default of "+jobs.DefaultOwner(of, spec.Namespace)+",")
	} else if name != jobs.Auction {
		spec.Scheduler = name
	}
}

// unsuitable says why a scheduler cannot run a job, with %s for the scheduler; "": it can.
func unsuitable(spec *jobs.Spec, name string) string {
	if name == jobs.Auction {
		return ""
	}
	if _, err := Parse(name); err != nil {
		return "%s is not known to this member's souk; upgrade it"
	}
	if what, _ := spec.AuctionOnly(); what != "" {
		return "%s knows no " + what
	}
	return ""
}
