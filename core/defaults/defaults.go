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

// Fill sets which scheduler runs a job, and where that is from. spec is settled, with its namespace; named is what the
// client named, "" for none. A default is no demand: where it does not suit the job, the auction runs the job, and
// spec.SchedulerFrom says why.
func Fill(spec *jobs.Spec, named string, rows Rows) {
	spec.SchedulerFrom = nil
	if named != "" {
		if spec.Scheduler == "" {
			spec.SchedulerFrom = &jobs.SchedulerFrom{Of: jobs.OfJob}
		}
		return
	}
	name, of := rows.Scheduler()
	if of == "" {
		return
	}
	spec.SchedulerFrom = &jobs.SchedulerFrom{Of: of, Why: unsuitable(spec, name, of)}
	if name != jobs.Auction && spec.SchedulerFrom.Why == "" {
		spec.Scheduler = name
	}
}

// unsuitable says why a default cannot run a job; "": it can.
func unsuitable(spec *jobs.Spec, name, of string) string {
	if name == jobs.Auction {
		return ""
	}
	whose := jobs.DefaultOwner(of, spec.Namespace)
	if _, err := Parse(name); err != nil {
		return fmt.Sprintf("this member's souk does not know %s, the default of %s; upgrade it", name, whose)
	}
	if what, _ := spec.AuctionOnly(); what != "" {
		return fmt.Sprintf("%s, the default of %s, knows no %s", name, whose, what)
	}
	return ""
}
