package api

import (
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// The operations on jobs and their tasks.
const (
	SubmitJob   Op = "POST /v1/souk/jobs"
	ListJobs    Op = "GET /v1/souk/jobs"
	GetJob      Op = "GET /v1/souk/jobs/{job}"
	WaitJob     Op = "GET /v1/souk/jobs/{job}/wait"
	ReportJob   Op = "GET /v1/souk/jobs/{job}/report"
	JobStanding Op = "GET /v1/souk/jobs/{job}/standing"
	Accounts    Op = "GET /v1/souk/accounts"
	CancelJob   Op = "POST /v1/souk/jobs/{job}/cancel"
	HoldJob     Op = "POST /v1/souk/jobs/{job}/hold"
	ReleaseJob  Op = "POST /v1/souk/jobs/{job}/release"
	Requeue     Op = "POST /v1/souk/jobs/{job}/requeue"
	ListTasks   Op = "GET /v1/souk/jobs/{job}/tasks"
	JobLogs     Op = "GET /v1/souk/jobs/{job}/logs"
	TaskLogs    Op = "GET /v1/souk/jobs/{job}/tasks/{index}/logs"

	GetSent   Op = "GET /v1/souk/sent/{digest}"
	PutSent   Op = "PUT /v1/souk/sent/{digest}"
	TaskFiles Op = "GET /v1/souk/jobs/{job}/tasks/{index}/files"

	CancelTasks Op = "POST /v1/souk/jobs/{job}/tasks/{indices}/cancel"
)

func jobRoutes() []Route {
	return []Route{
		{Op: SubmitJob, Verb: VerbCreate, Kind: KindJob, About: "Submit a job: one task, or an array of them.",
			In: NewJob{}, Out: jobs.Job{}, Code: 201},
		{Op: ListJobs, Verb: VerbList, Kind: KindJob, About: "List the jobs of all members, oldest first.",
			Query: "app unfinished", Out: JobList{}},
		{Op: GetJob, Verb: VerbGet, Kind: KindJob, About: "Describe a job, and why its tasks wait.",
			Out: jobs.Job{}},
		{Op: WaitJob, Verb: VerbWatch, Kind: KindJob,
			About: "Answer when the job has ended, or more than done of its tasks have.",
			Query: "timeout done", Out: jobs.Job{}},
		{Op: ReportJob, Verb: VerbGet, Kind: KindJob,
			About: "Report what a job asked for, waited for and used.", Out: jobs.JobReport{}},
		{Op: JobStanding, Verb: VerbGet, Kind: KindJob,
			About: "Ask the parties of a job's scheduler where its waiting tasks are.", Out: jobs.Standing{}},
		{Op: Accounts, Verb: VerbList, Kind: KindJob,
			About: "Add up what tasks used: from a day on, by day, namespace and owner, or some of them, as day,owner.",
			Query: "since by", Out: AccountList{}},
		{Op: CancelJob, Verb: VerbOperate, Kind: KindJob, About: "Drop the tasks that wait, end those that run.",
			Out: jobs.Job{}},
		{Op: HoldJob, Verb: VerbOperate, Kind: KindJob,
			About: "Keep the tasks that wait from starting; those that run go on.", Out: jobs.Job{}},
		{Op: ReleaseJob, Verb: VerbOperate, Kind: KindJob, About: "Let the tasks of a job on hold start.",
			Out: jobs.Job{}},
		{Op: Requeue, Verb: VerbOperate, Kind: KindJob,
			About: "End the tasks that run, or some of them, as 7 or 3,10-20, so that they run anew.",
			Query: "tasks", Out: TasksRequeued{}},
		{Op: CancelTasks, Verb: VerbOperate, Kind: KindJob,
			About: "Cancel some tasks alone, by index, as 7 or 3,10-20: drop what waits, end what runs.",
			Out:   TasksCancelled{}},
		{Op: ListTasks, Verb: VerbGet, Kind: KindJob, About: "List a job's tasks, in order of index.",
			Query: "from limit state*", Out: TaskPage{}},
		{Op: GetSent, Verb: VerbWatch, Kind: KindJob,
			About: "Tell whether this member has what was sent under a digest to an app's jobs.",
			Query: "app", Out: SentFiles{}},
		{Op: PutSent, Verb: VerbOperate, Kind: KindJob,
			About: "Send a file or directory for the tasks of an app's jobs: an archive, under its digest.",
			Query: "app", Out: SentFiles{}},
		{Op: TaskFiles, Verb: VerbWatch, Kind: KindJob, About: "Read the files that a task left, as a tar stream.",
			Media: Tar},
		{Op: JobLogs, Verb: VerbWatch, Kind: KindLog,
			About: "Stream what a job's tasks wrote, in order of index; of some of them alone, as 7 or 3,10-20.",
			Query: "tasks tail", Out: jobs.TaskLine{}, Media: NDJSON},
		{Op: TaskLogs, Verb: VerbWatch, Kind: KindLog, About: "Stream what a task wrote.",
			Query: "tail follow", Out: machine.LogLine{}, Media: NDJSON},
	}
}
