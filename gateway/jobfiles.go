package gateway

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// JobFiles are what users send for the tasks of jobs, and the files that tasks leave. What is sent is named by its app
// and the digest of its archive. All errors are *fault.Error.
type JobFiles interface {
	// SentSize returns the size of an archive that this member has, and whether it has it.
	SentSize(app, digest string) (bytes int64, here bool)
	// PutSent stores an archive that r delivers.
	PutSent(ctx context.Context, app, digest string, r io.Reader) (bytes int64, err error)
	// SpreadSent makes sure that a second member has an archive that this one has, if there is another, and returns the
	// members that have it.
	SpreadSent(ctx context.Context, app, digest string) []cluster.WorkerID
	// TaskFiles writes the files that an attempt left at a worker, as a tar stream.
	TaskFiles(ctx context.Context, at cluster.WorkerID, l jobs.Life, w io.Writer) error
}

// filesOrError returns the files of jobs.
func (a *jobsAPI) filesOrError() (JobFiles, error) {
	if a.files == nil {
		return nil, fault.New(fault.Unimplemented, jobs.CodeJobs, "this member keeps no files of jobs; ask one that "+
			"does")
	}
	return a.files, nil
}

// sentApp returns the app of whose jobs the request says something: the one that it names, or else that of its token.
func sentApp(r *http.Request) (string, error) {
	s := jobs.Spec{App: r.URL.Query().Get("app")}
	fillApp(r, &s)
	if err := settleOwner(r, &s); err != nil {
		return "", err
	}
	// an answer says whether somebody else has what the asker can guess
	if q := of(r); api.IsUserApp(s.App) && !slices.ContainsFunc(q.who, func(t api.Token) bool {
		return t.Role == api.RoleAdmin || t.UnixUser != nil && api.AppOfUser(*t.UnixUser) == s.App
	}) {
		return "", errUsersApp(q.to, s.App)
	}
	return s.App, nil
}

func (a *jobsAPI) getSent(w http.ResponseWriter, r *http.Request) error {
	files, err := a.filesOrError()
	if err != nil {
		return err
	}
	app, err := sentApp(r)
	if err != nil {
		return err
	}
	digest := r.PathValue("digest")
	bytes, here := files.SentSize(app, digest)
	if !here {
		return fault.New(fault.NotFound, codeSent, "this member does not have %.80q of app %s; send it", digest, app)
	}
	answerJSON(w, http.StatusOK, api.SentFiles{Digest: digest, Bytes: bytes, At: []cluster.WorkerID{}})
	return nil
}

func (a *jobsAPI) putSent(w http.ResponseWriter, r *http.Request) error {
	files, err := a.filesOrError()
	if err != nil {
		return err
	}
	app, err := sentApp(r)
	if err != nil {
		return err
	}
	digest := r.PathValue("digest")
	// what is not a whole archive with this digest is not kept, so an answer that was lost can be asked for again
	bytes, err := files.PutSent(r.Context(), app, digest, r.Body)
	if err != nil {
		return err
	}
	at := files.SpreadSent(r.Context(), app, digest)
	answerJSON(w, http.StatusOK, api.SentFiles{Digest: digest, Bytes: bytes, At: append([]cluster.WorkerID{}, at...)})
	return nil
}

// secureSent refuses a job that is to be sent what this member does not have, and notes in it which members have it.
func (a *jobsAPI) secureSent(ctx context.Context, spec *jobs.Spec) error {
	for i := range spec.Sent {
		x := &spec.Sent[i]
		files, err := a.filesOrError()
		if err != nil {
			return err
		}
		bytes, here := files.SentSize(spec.App, x.Digest)
		if !here {
			return fault.New(fault.Precondition, codeSent, "the job is to be sent %.80q, and this member does not "+
				"have %s of app %s; send it first", x.Name, x.Digest, spec.App)
		}
		x.Bytes, x.At = bytes, files.SpreadSent(ctx, spec.App, x.Digest)
	}
	return nil
}

// taskFiles streams the files that a task left.
func (a *jobsAPI) taskFiles(w http.ResponseWriter, r *http.Request) error {
	files, err := a.filesOrError()
	if err != nil {
		return err
	}
	index, err := indexOf(r)
	if err != nil {
		return err
	}
	ref, err := a.findWhole(r)
	if err != nil {
		return err
	}
	tasks, _, err := a.jobs.Tasks(r.Context(), ref, jobs.TaskQuery{From: index, Limit: 1})
	if err != nil {
		return err
	}
	if len(tasks) == 0 || tasks[0].Index != index {
		return fault.New(fault.NotFound, fault.CodeJobNotFound, "job %.80q has no task %d", ref, index)
	}
	t := &tasks[0]
	if t.Files == nil || t.Files.Files == 0 {
		why := "it is " + t.State
		switch {
		case t.Files != nil:
			why = cmp.Or(t.Files.Why, "it left none")
		case t.ExitCode != nil:
			why = "the job was submitted without --out"
		}
		return fault.New(fault.NotFound, codeSent, "no files of task %d are kept: %s", index, why)
	}
	l, is := jobs.ParseLife(t.Files.Life)
	if !is {
		return fault.New(fault.Internal, codeSent, "task %d is said to have left its files as %.80q", index,
			t.Files.Life)
	}
	b := &begunWriter{w: w}
	err = files.TaskFiles(r.Context(), t.Worker, l, b)
	if err != nil && b.begun {
		a.log.WarnContext(r.Context(), "the files of a task broke off", "request", requestID(r), "error", err)
		panic(http.ErrAbortHandler) // a tar stream that simply ended would look complete
	}
	return err
}
