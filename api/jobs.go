package api

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
)

// NewJob is the request to submit a job. A client that chooses the ID can ask again when an answer was lost.
type NewJob struct {
	ID string `json:"id,omitempty"`
	jobs.Spec
}

// JobList lists jobs, oldest first.
type JobList struct {
	Jobs []jobs.Job `json:"jobs"`
}

// AccountList lists what tasks did and used, of the jobs of all members.
type AccountList struct {
	Accounts []accounts.AccountLine `json:"accounts"`
}

// TasksRequeued is the answer to the requeueing of tasks.
type TasksRequeued struct {
	Job   jobs.Job `json:"job"`
	Tasks int      `json:"tasks"` // that run or are about to; they are ended, and run again
}

// TasksCancelled is the answer to the cancelling of tasks.
type TasksCancelled struct {
	Job    jobs.Job `json:"job"`
	Tasks  int      `json:"tasks"`  // tasks cancelled now; others had ended or were cancelled before
	Ending int      `json:"ending"` // those of Tasks that run or are about to, and are killed
}

// TaskPage is a page of a job's tasks, in order of index.
type TaskPage struct {
	Tasks []jobs.Task `json:"tasks"`
	Next  *int        `json:"next,omitempty"` // the index to continue from; none at the end
}

// SentFiles is a file or directory that was sent for the tasks of an app's jobs.
type SentFiles struct {
	Digest string             `json:"digest"` // of its archive
	Bytes  int64              `json:"bytes"`  // of its archive
	At     []cluster.WorkerID `json:"at"`     // members that have it; empty if this process is alone
}
