package wire

import (
	"context"
	"io"
	"net/http"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

const (
	pathTaskFiles  = "/wire/task-files"
	pathSentRead   = "/wire/sent"
	pathSentSecure = "/wire/sent-secure"
)

// Sent is what users sent for the tasks of jobs, as this member keeps it. What is sent is named by its app and the digest
// of its archive: see package sent.
type Sent interface {
	// ReadSent writes an archive; NotFound: this member does not have it.
	ReadSent(ctx context.Context, app, digest string, w io.Writer) error
	// SecureSent makes sure that this member has an archive, and fetches it from another one if it does not.
	SecureSent(ctx context.Context, app, digest string, from cluster.WorkerID) error
}

type sentArgs struct {
	App    string           `json:"app"`
	Digest string           `json:"digest"`
	From   cluster.WorkerID `json:"from,omitempty"`
}

func (a *sentArgs) check() error { return checkLengths(a.App, a.Digest, string(a.From)) }

func (s *Server) sentOrError() (Sent, error) {
	if s.o.Sent == nil {
		return nil, fault.New(fault.Unimplemented, jobs.CodeJobs, "%s keeps nothing of what jobs are sent",
			s.o.Identity.Name().ID)
	}
	return s.o.Sent, nil
}

// readSent streams an archive.
func (s *Server) readSent(w http.ResponseWriter, r *http.Request, _ Peer) error {
	var in sentArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	k, err := s.sentOrError()
	if err != nil {
		return err
	}
	return sendBytes(w, func(to io.Writer) error { return k.ReadSent(r.Context(), in.App, in.Digest, to) })
}

// secureSent answers when this member has the archive, which may take long.
func (s *Server) secureSent(w http.ResponseWriter, r *http.Request, _ Peer) error {
	var in sentArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	k, err := s.sentOrError()
	if err != nil {
		return err
	}
	return sendBytes(w, func(io.Writer) error { return k.SecureSent(r.Context(), in.App, in.Digest, in.From) })
}

type taskFilesArgs struct {
	Life taskLife `json:"life"`
}

func (a *taskFilesArgs) check() error { return nil }

// taskFiles streams the files that an attempt left.
func (s *Server) taskFiles(w http.ResponseWriter, r *http.Request, _ Peer) error {
	if s.o.Tasks == nil {
		return s.noTasksError()
	}
	var in taskFilesArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	return sendBytes(w, func(to io.Writer) error { return s.o.Tasks.Files(r.Context(), jobs.Life(in.Life), to) })
}

// ReadSent writes an archive that the member has to w.
func (l *Link) ReadSent(ctx context.Context, app, digest string, w io.Writer) error {
	return l.receiveBytes(ctx, pathSentRead, sentArgs{App: app, Digest: digest}, w)
}

// SecureSent has the member fetch an archive from another one, unless it has it.
func (l *Link) SecureSent(ctx context.Context, app, digest string, from cluster.WorkerID) error {
	return l.receiveBytes(ctx, pathSentSecure, sentArgs{app, digest, from}, io.Discard)
}

// TaskFiles writes the files that an attempt of the worker left to w, as a tar stream.
func (w *Worker) TaskFiles(ctx context.Context, l jobs.Life, to io.Writer) error {
	return w.receiveBytes(ctx, pathTaskFiles, taskFilesArgs{taskLife(l)}, to)
}
