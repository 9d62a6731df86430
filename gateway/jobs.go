package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/services/releases"
	"github.com/soukhq/souk/store/catalog"
)

// Jobs is what a gateway needs of the buyers of tasks of all members. A job is named by its id, or by its name, which
// means the newest job of that name. All errors are *fault.Error.
type Jobs interface {
	// Submitted returns the job that a client may have submitted before under an id, drawn at a time (zero: unknown);
	// NotFound: there is none.
	Submitted(ctx context.Context, id string, drawn time.Time) (jobs.Job, error)
	// Submit accepts a job; the answer is durable. Repeating an id at the same member returns the existing job.
	Submit(ctx context.Context, id string, spec jobs.Spec) (jobs.Job, error)
	// Status returns a job and, if it is named by its name, the members that could not be asked.
	Status(ctx context.Context, job string) (jobs.Job, []find.Unanswered, error)
	// List lists the jobs of an app, "" for all, oldest first, those that have ended only if ended is set; and the
	// members that could not be asked.
	List(ctx context.Context, app string, ended bool) ([]jobs.Job, []find.Unanswered, error)
	// Accounts returns what each owner's tasks did and used from a day on, and the members that could not be asked.
	Accounts(ctx context.Context, since accounts.Day) ([]accounts.Entry, []find.Unanswered, error)
	// JobReport returns what a job asked for and used.
	JobReport(ctx context.Context, job string) (jobs.JobReport, error)
	// Standing asks how a job stands with the parties of its scheduler, at all members.
	Standing(ctx context.Context, job string) (jobs.Standing, error)
	// Tasks lists tasks in order of index; next is the index to continue with; -1 at the end.
	Tasks(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error)
	Cancel(ctx context.Context, job string) (jobs.Job, error)
	// SetHold keeps the waiting tasks of a job from starting, or lets them go.
	SetHold(ctx context.Context, job string, hold bool) (jobs.Job, error)
	// Requeue ends running tasks, those in list or all for nil, so that they run anew, and returns how many.
	Requeue(ctx context.Context, job string, list jobs.Indices) (jobs.Job, int, error)
	// CancelTasks cancels some tasks of a job.
	CancelTasks(ctx context.Context, job string, list jobs.Indices) (jobs.Job, jobs.TasksCancelled, error)
	// Wait returns when the job has ended, when more than done of its tasks have ended, or after limit.
	Wait(ctx context.Context, job string, done int, limit time.Duration) (jobs.Job, error)
	Logs(ctx context.Context, job string, index int, q machine.LogQuery, emit func(machine.LogLine) error) error
	// TaskOutput emits the output of those tasks that have begun, in order of index.
	TaskOutput(ctx context.Context, job string, q jobs.OutputQuery, emit func(jobs.TaskLine) error) error
}

const maxTasksPage = 10_000

// jobsAPI serves jobs.
type jobsAPI struct {
	jobs      Jobs            // nil: jobs are not taken
	files     JobFiles        // nil: there are none
	images    releases.Images // nil: names of images are used as they are
	catalog   jobCatalog
	directory *directory
	rand      io.Reader
	log       *slog.Logger
}

// jobCatalog is what jobsAPI needs of the catalog.
type jobCatalog interface {
	App(name string) (catalog.App, error)
	NamespaceOf(app string) (catalog.Namespace, error)
	SchedulerRows(namespace string) defaults.Rows
	SecretsOf(app string) ([]catalog.Secret, uint64, error)
}

func (a *jobsAPI) opHandlers() handlers {
	return handlers{
		"POST /v1/souk/jobs":                         a.submitJob,
		"GET /v1/souk/jobs":                          a.listJobs,
		"GET /v1/souk/accounts":                      a.listAccounts,
		"GET /v1/souk/jobs/{job}":                    a.getJob,
		"GET /v1/souk/jobs/{job}/wait":               a.waitJob,
		"GET /v1/souk/jobs/{job}/report":             a.reportJob,
		"GET /v1/souk/jobs/{job}/standing":           a.jobStanding,
		"POST /v1/souk/jobs/{job}/cancel":            a.cancelJob,
		"POST /v1/souk/jobs/{job}/hold":              a.holdJob(true),
		"POST /v1/souk/jobs/{job}/release":           a.holdJob(false),
		"POST /v1/souk/jobs/{job}/requeue":           a.requeueTasks,
		"GET /v1/souk/jobs/{job}/tasks":              a.listTasks,
		"GET /v1/souk/jobs/{job}/logs":               a.jobLogs,
		"GET /v1/souk/jobs/{job}/tasks/{index}/logs": a.taskLogs,

		"GET /v1/souk/sent/{digest}":                  a.getSent,
		"PUT /v1/souk/sent/{digest}":                  a.putSent,
		"GET /v1/souk/jobs/{job}/tasks/{index}/files": a.taskFiles,

		"POST /v1/souk/jobs/{job}/tasks/{indices}/cancel": a.cancelTasks,
	}
}

// buyerOrError returns the buyer of tasks, or an error if there is none.
func (a *jobsAPI) buyerOrError() (Jobs, error) {
	if a.jobs == nil {
		return nil, errNoJobs()
	}
	return a.jobs, nil
}

func errNoJobs() error {
	return fault.New(fault.Unimplemented, jobs.CodeJobs, "this member takes no jobs; ask one that does")
}

// submitTimeout ends a submit that no buyer answers.
const submitTimeout = 2 * time.Minute

func (a *jobsAPI) submitJob(w http.ResponseWriter, r *http.Request) error {
	b, err := a.buyerOrError()
	if err != nil {
		return err
	}
	raw, err := readBody(w, r)
	if err != nil {
		return err
	}
	var n api.NewJob
	if err := decodeStrict(raw, &n); err != nil {
		return err
	}
	fillApp(r, &n.Spec)
	named := n.Scheduler // which settling makes "" for the auction
	if err := n.Settle(); err != nil {
		return err
	}
	if err := settleOwner(r, &n.Spec); err != nil {
		return err
	}
	if j, err := a.submittedBefore(r, n.ID); !fault.Is(err, fault.NotFound) {
		if err == nil {
			err = checkWhole(r, &j)
		}
		if err == nil {
			answerJSON(w, http.StatusCreated, j)
		}
		return err
	}
	if err := a.findAwaited(r, &n.Spec); err != nil {
		return err
	}
	if err := a.fitsEver(r.Context(), n.Spec); err != nil {
		return err
	}
	if err := a.fillMeans(&n.Spec); err != nil {
		return err
	}
	if err := a.drawID(&n); err != nil {
		return err
	}
	defaults.Fill(&n.Spec, n.ID, named, a.catalog.SchedulerRows(n.Namespace))
	if err := a.checkSecrets(&n.Spec); err != nil {
		return err
	}
	if err := a.pinImage(r.Context(), &n.Spec); err != nil {
		return err
	}
	if err := a.secureSent(r.Context(), &n.Spec); err != nil {
		return err
	}
	// If the client goes, the job is accepted all the same, and can be found by its id.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), submitTimeout)
	defer cancel()
	j, err := b.Submit(ctx, n.ID, n.Spec)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusCreated, j)
	return nil
}

// drawID draws the id of a job for which the client has chosen none.
func (a *jobsAPI) drawID(n *api.NewJob) error {
	if n.ID != "" {
		return nil
	}
	var random [8]byte
	if _, err := io.ReadFull(a.rand, random[:]); err != nil {
		return fault.Wrap(err, fault.Internal, codeRandom, "no random id could be made for the job")
	}
	n.ID = jobs.ID(binary.BigEndian.Uint64(random[:]))
	return nil
}

// submittedBefore returns the job that the client may have submitted before under this id, at this member or another;
// NotFound: there is none.
func (a *jobsAPI) submittedBefore(r *http.Request, id string) (jobs.Job, error) {
	if !jobs.ValidID(id) || r.Header.Get(api.NewKeyHeader) != "" {
		return jobs.Job{}, fault.New(fault.NotFound, fault.CodeJobNotFound, "the job was not submitted before")
	}
	drawn, err := drawnAt(r.Header.Get(api.KeyAgeHeader))
	if err != nil {
		return jobs.Job{}, err
	}
	return a.jobs.Submitted(r.Context(), id, drawn)
}

// fillMeans sets in a job which namespace pays, and how often its tasks may be evicted: its app decides both, not the
// client. A job without an existing app belongs to the default namespace, since tasks need no app.
func (a *jobsAPI) fillMeans(spec *jobs.Spec) error {
	space, err := a.catalog.NamespaceOf(spec.App)
	if err != nil {
		return err
	}
	app, _ := a.catalog.App(spec.App)
	spec.Namespace, spec.Budget = space.Name, app.Budget
	return nil
}

// checkSecrets refuses a job that is to have secrets which its app does not have, and notes in it the version of the
// app's secrets, which workers are to reach.
func (a *jobsAPI) checkSecrets(spec *jobs.Spec) error {
	spec.SecretsVersion = 0
	if len(spec.Secrets) == 0 {
		return nil
	}
	list, version, err := a.catalog.SecretsOf(spec.App)
	if err != nil {
		return err
	}
	for _, x := range spec.Secrets {
		if !slices.ContainsFunc(list, func(s catalog.Secret) bool { return s.Name == x.Name }) {
			return fault.New(fault.Precondition, fault.CodeSecret,
				"app %s has no secret %.80q; set it first, with \"souk secrets set --app %s\"", spec.App, x.Name,
				spec.App)
		}
	}
	spec.SecretsVersion = version
	return nil
}

// fitsEver refuses a job whose tasks no worker could take even if it were empty, in the judge's words.
func (a *jobsAPI) fitsEver(ctx context.Context, spec jobs.Spec) error {
	view := a.directory.View()
	if len(view.Workers) == 0 {
		return fault.New(fault.Unavailable, codeNoWorker,
			"no worker answers, so whether a task of this job could ever run is not known; try again when one does")
	}
	var why []string
	var verdicts []placement.Verdict
	req := spec.Request()
	for _, rec := range view.Workers {
		v := placement.Judge(req, rec)
		if !v.Never {
			return nil
		}
		verdicts = append(verdicts, v)
		why = append(why, fmt.Sprintf("%s: %s", rec.Worker, placement.VerdictText(v)))
	}
	advice := cmp.Or(market.ConstraintAdvice(&req, view, verdicts),
		"ask for less for each task, or add a larger worker")
	e := fault.New(fault.Exhausted, fault.CodeNeverFits,
		"no worker could ever take a task of this job, even if it were empty (%s); %s",
		strings.Join(why[:min(len(why), 3)], "; "), advice)
	e.Scope = fault.ScopeRegion
	return e
}

func (a *jobsAPI) listJobs(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.buyerOrError(); err != nil {
		return err
	}
	unfinished, err := queryBool(r, "unfinished")
	if err != nil {
		return err
	}
	list, silent, err := a.listedJobs(r.Context(), r, r.URL.Query().Get("app"), !unfinished)
	if err != nil {
		return err
	}
	setMissing(w, workersOf(silent))
	answerJSON(w, http.StatusOK, api.JobList{Jobs: list})
	return nil
}

func (a *jobsAPI) getJob(w http.ResponseWriter, r *http.Request) error {
	j, silent, err := a.findJob(r)
	if err != nil {
		return err
	}
	setMissing(w, workersOf(silent))
	answerJSON(w, http.StatusOK, limitSight(r, j))
	return nil
}

func (a *jobsAPI) waitJob(w http.ResponseWriter, r *http.Request) error {
	seconds, err := queryInt(r, "timeout", maxWait, 1, maxWait)
	if err != nil {
		return err
	}
	done, err := queryInt(r, "done", jobs.MaxTasks, 0, jobs.MaxTasks)
	if err != nil {
		return err
	}
	found, _, err := a.findJob(r)
	if err != nil {
		return err
	}
	j, err := a.jobs.Wait(r.Context(), found.ID, done, time.Duration(seconds)*time.Second)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, limitSight(r, j))
	return nil
}

func (a *jobsAPI) cancelJob(w http.ResponseWriter, r *http.Request) error {
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	j, err := a.jobs.Cancel(r.Context(), ref)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, j)
	return nil
}

// holdJob holds or releases a job.
func (a *jobsAPI) holdJob(hold bool) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ref, err := a.findWhole(r)
		if err != nil {
			return err
		}
		j, err := a.jobs.SetHold(r.Context(), ref, hold)
		if err != nil {
			return err
		}
		answerJSON(w, http.StatusOK, j)
		return nil
	}
}

func (a *jobsAPI) requeueTasks(w http.ResponseWriter, r *http.Request) error {
	list, err := queryTasks(r)
	if err != nil {
		return err
	}
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	j, n, err := a.jobs.Requeue(r.Context(), ref, list)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.TasksRequeued{Job: j, Tasks: n})
	return nil
}

// queryTasks reads the tasks that a request is about; nil: all.
func queryTasks(r *http.Request) (jobs.Indices, error) {
	list := r.URL.Query().Get("tasks")
	if list == "" {
		return nil, nil
	}
	return jobs.ParseIndices(list)
}

func (a *jobsAPI) cancelTasks(w http.ResponseWriter, r *http.Request) error {
	list, err := jobs.ParseIndices(r.PathValue("indices"))
	if err != nil {
		return err
	}
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	j, done, err := a.jobs.CancelTasks(r.Context(), ref, list)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.TasksCancelled{Job: j, Tasks: done.Tasks, Ending: done.Ending})
	return nil
}

func (a *jobsAPI) reportJob(w http.ResponseWriter, r *http.Request) error {
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	report, err := a.jobs.JobReport(r.Context(), ref)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, report)
	return nil
}

func (a *jobsAPI) jobStanding(w http.ResponseWriter, r *http.Request) error {
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	s, err := a.jobs.Standing(r.Context(), ref)
	if err != nil {
		return err
	}
	if s.Said == nil {
		s.Said = []jobs.Said{}
	}
	answerJSON(w, http.StatusOK, s)
	return nil
}

func (a *jobsAPI) listTasks(w http.ResponseWriter, r *http.Request) error {
	from, err := queryInt(r, "from", 0, 0, jobs.MaxIndex)
	if err != nil {
		return err
	}
	limit, err := queryInt(r, "limit", maxTasksPage, 1, maxTasksPage)
	if err != nil {
		return err
	}
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	tasks, next, err := a.jobs.Tasks(r.Context(), ref,
		jobs.TaskQuery{From: from, Limit: limit, States: r.URL.Query()["state"]})
	if err != nil {
		return err
	}
	out := api.TaskPage{Tasks: append([]jobs.Task{}, tasks...)}
	if next >= 0 {
		out.Next = &next
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// indexOf returns the index of the task that a path names.
func indexOf(r *http.Request) (int, error) {
	text := r.PathValue("index")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || strconv.Itoa(index) != text {
		return 0, fault.New(fault.Invalid, codeIndex, "%q is no index of a task; write a number", clipText(text, 40))
	}
	return index, nil
}

func (a *jobsAPI) taskLogs(w http.ResponseWriter, r *http.Request) error {
	index, err := indexOf(r)
	if err != nil {
		return err
	}
	tail, err := queryTail(r)
	if err != nil {
		return err
	}
	follow, err := queryBool(r, "follow")
	if err != nil {
		return err
	}
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	l := newLines(w, a.log)
	defer l.flushRest()
	if follow {
		if err := l.sendHeaders(); err != nil {
			return l.finishStream(r, err)
		}
	}
	err = a.jobs.Logs(r.Context(), ref, index, machine.LogQuery{Tail: tail, Follow: follow},
		func(line machine.LogLine) error { return l.sendLine(line) })
	if err == nil {
		err = l.sendHeaders() // the output was empty
	}
	return l.finishStream(r, err)
}

// jobLogs streams the output of several tasks.
func (a *jobsAPI) jobLogs(w http.ResponseWriter, r *http.Request) error {
	var q jobs.OutputQuery
	var err error
	if q.Tail, err = queryTail(r); err != nil {
		return err
	}
	if q.Tasks, err = queryTasks(r); err != nil {
		return err
	}
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	l := newLines(w, a.log)
	defer l.flushRest()
	err = a.jobs.TaskOutput(r.Context(), ref, q, func(line jobs.TaskLine) error { return l.sendLine(line) })
	if err == nil {
		err = l.sendHeaders() // no task has written anything
	}
	return l.finishStream(r, err)
}
