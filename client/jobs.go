package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// SubmitJob submits a job. id is chosen by the caller, who may then repeat the call, at any member: nothing is submitted
// twice. "": the client chooses one that is new.
func (c *Client) SubmitJob(ctx context.Context, id string, spec jobs.Spec) (jobs.Job, error) {
	k := newCall(api.SubmitJob)
	if id == "" {
		var random [8]byte
		rand.Read(random[:]) // never fails: it ends the program instead
		id = jobs.ID(binary.BigEndian.Uint64(random[:]))
		k = k.withHeader(api.NewKeyHeader, "1")
	}
	k = k.withHeader(api.IdempotencyHeader, id).withBody(api.NewJob{ID: id, Spec: spec})
	var j jobs.Job
	err := c.doCall(ctx, k, &j)
	return j, err
}

// Jobs lists the jobs of an app, "" for all, oldest first.
func (c *Client) Jobs(ctx context.Context, app string) ([]jobs.Job, error) {
	return c.listJobs(ctx, app, url.Values{})
}

// UnfinishedJobs lists the jobs of an app, "" for all, that have not ended, oldest first.
func (c *Client) UnfinishedJobs(ctx context.Context, app string) ([]jobs.Job, error) {
	return c.listJobs(ctx, app, url.Values{"unfinished": {"true"}})
}

func (c *Client) listJobs(ctx context.Context, app string, q url.Values) ([]jobs.Job, error) {
	var a api.JobList
	if app != "" {
		q.Set("app", app)
	}
	err := c.doCall(ctx, newCall(api.ListJobs).withQuery(q), &a)
	return a.Jobs, err
}

// Job returns a job, by its id or its name.
func (c *Client) Job(ctx context.Context, ref string) (jobs.Job, error) {
	var j jobs.Job
	err := c.doCall(ctx, newCall(api.GetJob, ref), &j)
	return j, err
}

// WaitJob returns when the job has ended, when more than done of its tasks have, or after at most a minute: check the
// state.
func (c *Client) WaitJob(ctx context.Context, ref string, done int, limit time.Duration) (jobs.Job, error) {
	seconds := min(max(int((limit+time.Second-1)/time.Second), 1), 60)
	q := url.Values{"timeout": {strconv.Itoa(seconds)}, "done": {strconv.Itoa(done)}}
	var j jobs.Job
	err := c.doCall(ctx, newCall(api.WaitJob, ref).withQuery(q), &j)
	return j, err
}

// Accounts adds up what tasks used from a day on, by day, namespace and owner, or those of them that by names, with
// commas.
func (c *Client) Accounts(ctx context.Context, since accounts.Day, by string) ([]accounts.AccountLine, error) {
	var a api.AccountList
	q := url.Values{"since": {since.String()}, "by": {by}}
	err := c.doCall(ctx, newCall(api.Accounts).withQuery(q), &a)
	return a.Accounts, err
}

// JobReport returns what a job asked for, waited for and used.
func (c *Client) JobReport(ctx context.Context, ref string) (jobs.JobReport, error) {
	var r jobs.JobReport
	err := c.doCall(ctx, newCall(api.ReportJob, ref), &r)
	return r, err
}

// JobStanding asks the parties of a job's scheduler where its waiting tasks are.
func (c *Client) JobStanding(ctx context.Context, ref string) (jobs.Standing, error) {
	var s jobs.Standing
	err := c.doCall(ctx, newCall(api.JobStanding, ref), &s)
	return s, err
}

// CancelJob drops the tasks that wait and ends those that run.
func (c *Client) CancelJob(ctx context.Context, ref string) (jobs.Job, error) {
	var j jobs.Job
	err := c.doCall(ctx, newCall(api.CancelJob, ref), &j)
	return j, err
}

// HoldJob keeps the tasks of a job that wait from starting.
func (c *Client) HoldJob(ctx context.Context, ref string) (jobs.Job, error) {
	var j jobs.Job
	err := c.doCall(ctx, newCall(api.HoldJob, ref), &j)
	return j, err
}

// ReleaseJob lets the tasks of a job on hold start.
func (c *Client) ReleaseJob(ctx context.Context, ref string) (jobs.Job, error) {
	var j jobs.Job
	err := c.doCall(ctx, newCall(api.ReleaseJob, ref), &j)
	return j, err
}

// RequeueTasks ends running tasks of a job, those in list or all for nil, so that they run anew.
func (c *Client) RequeueTasks(ctx context.Context, ref string, list jobs.Indices) (api.TasksRequeued, error) {
	q := url.Values{}
	if list != nil {
		q.Set("tasks", list.String())
	}
	var out api.TasksRequeued
	err := c.doCall(ctx, newCall(api.Requeue, ref).withQuery(q), &out)
	return out, err
}

// CancelTasks cancels some tasks of a job: it drops those that wait and ends those that run.
func (c *Client) CancelTasks(ctx context.Context, ref string, list jobs.Indices) (api.TasksCancelled, error) {
	var out api.TasksCancelled
	err := c.doCall(ctx, newCall(api.CancelTasks, ref, list.String()), &out)
	return out, err
}

// JobTasks lists a job's tasks in order of index, only those in one of states if any are given. It reads page by page.
func (c *Client) JobTasks(ctx context.Context, ref string, states ...string) ([]jobs.Task, error) {
	var all []jobs.Task
	for from := 0; ; {
		var a api.TaskPage
		q := url.Values{"from": {strconv.Itoa(from)}, "state": states}
		if err := c.doCall(ctx, newCall(api.ListTasks, ref).withQuery(q), &a); err != nil {
			return nil, err
		}
		all = append(all, a.Tasks...)
		if a.Next == nil || *a.Next <= from { // an index never goes back: the loop ends
			return all, nil
		}
		from = *a.Next
	}
}

// Sent returns what was sent under a digest for an app's jobs, "" for the token's app; NotFound: the member does not
// have it.
func (c *Client) Sent(ctx context.Context, app, digest string) (s api.SentFiles, err error) {
	err = c.doCall(ctx, newCall(api.GetSent, digest).withQuery(ofApp(app)), &s)
	return s, err
}

// SendFiles sends a file or directory for the tasks of an app's jobs, as an archive in the form of package sent. The
// archive is sent as it is read.
func (c *Client) SendFiles(ctx context.Context, app, digest string, archive io.Reader) (s api.SentFiles, err error) {
	k := newCall(api.PutSent, digest).withQuery(ofApp(app)).withBody(archive).withHeader("Content-Type", api.Tar)
	err = c.doCall(ctx, k, &s)
	return s, err
}

func ofApp(app string) url.Values {
	if app == "" {
		return url.Values{}
	}
	return url.Values{"app": {app}}
}

// TaskFiles writes the files that a task left to w, as a tar stream.
func (c *Client) TaskFiles(ctx context.Context, ref string, index int, w io.Writer) error {
	resp, err := c.sendCall(ctx, newCall(api.TaskFiles, ref, strconv.Itoa(index)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return brokenError(ctx, err)
	}
	return nil
}

// TaskLogs returns the last Tail lines of a task's output; nil: all that is kept. With Follow it waits for more of a
// task that runs.
func (c *Client) TaskLogs(ctx context.Context, ref string, index int, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	v := url.Values{}
	if q.Tail != nil {
		v.Set("tail", strconv.Itoa(*q.Tail))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	resp, err := c.sendCall(ctx, newCall(api.TaskLogs, ref, strconv.Itoa(index)).withQuery(v))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return eachLine(ctx, resp.Body, emit)
}

// JobLogs calls emit with what several tasks of a job wrote, in order of index: of all that have begun, or of those that q
// names. Output that is not there does not end it: see jobs.TaskLine.
func (c *Client) JobLogs(ctx context.Context, ref string, q jobs.OutputQuery, emit func(jobs.TaskLine) error) error {
	v := url.Values{}
	if q.Tail != nil {
		v.Set("tail", strconv.Itoa(*q.Tail))
	}
	if len(q.Tasks) > 0 {
		v.Set("tasks", q.Tasks.String())
	}
	resp, err := c.sendCall(ctx, newCall(api.JobLogs, ref).withQuery(v))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return eachLine(ctx, resp.Body, emit)
}
