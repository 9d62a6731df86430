package jobs

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeJobID        fault.Code = "job_id"         // the text is no id of a job
	CodeJobs         fault.Code = "jobs"           // the limit of jobs is reached, or this member takes none
	CodeTaskNotFound fault.Code = "task_not_found" // the job has no such task
	codeTasks        fault.Code = "tasks"          // the list of tasks is wrong
)
