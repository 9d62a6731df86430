package node

import (
	"context"
	"io"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/store/kept"
	"github.com/soukhq/souk/store/sent"
	"github.com/soukhq/souk/worker/batch"
)

// openSent opens the store of what jobs are sent, which the workers here share.
func (n *Node) openSent() (err error) {
	o := sent.Options{Dir: n.pathBelow(sentDir), Boot: proc.BootID(), Log: n.o.Log, InUse: n.sentInUse}
	if m := n.o.Member; m != nil {
		o.Fetch = func(ctx context.Context, from cluster.WorkerID, k sent.Key, w io.Writer) error {
			far, known := m.Other(from)
			if !known {
				return errNotKnown(from)
			}
			return far.ReadSent(ctx, k.App, k.Digest, w)
		}
	}
	n.sent, err = sent.Open(o)
	return err
}

// sentInUse lists what unfinished jobs need that this member keeps, or has a copy of.
func (n *Node) sentInUse(ctx context.Context) (out []sent.Key, err error) {
	if n.buyer == nil { // it is being opened
		return nil, fault.New(fault.Unavailable, fault.CodeJob, "it is not known yet which jobs are unfinished")
	}
	specs, err := n.buyer.Unfinished(ctx)
	for i := range specs {
		for _, x := range specs[i].Sent {
			out = append(out, sent.Key{App: specs[i].App, Digest: x.Digest})
		}
	}
	return out, err
}

// openKept opens the store of the files that a worker's tasks leave.
func (n *Node) openKept(w Worker) (*kept.Store, error) {
	s, err := kept.Open(kept.Options{Dir: filepath.Join(w.Dir, workerKept), Log: n.o.Log})
	if err == nil {
		n.kept = append(n.kept, s)
	}
	return s, err
}

// jobFiles implements gateway.JobFiles, and wire.Sent.
type jobFiles struct{ n *Node }

// SentSize returns the size of an archive that this member has.
func (f jobFiles) SentSize(app, digest string) (bytes int64, here bool) {
	return f.n.sent.Size(sent.Key{App: app, Digest: digest})
}

// PutSent stores an archive.
func (f jobFiles) PutSent(ctx context.Context, app, digest string, r io.Reader) (bytes int64, err error) {
	return f.n.sent.Put(ctx, sent.Key{App: app, Digest: digest}, r)
}

// ReadSent writes an archive.
func (f jobFiles) ReadSent(ctx context.Context, app, digest string, w io.Writer) error {
	return f.n.sent.Read(ctx, sent.Key{App: app, Digest: digest}, w)
}

// SecureSent fetches an archive from another member, unless it is here.
func (f jobFiles) SecureSent(ctx context.Context, app, digest string, from cluster.WorkerID) error {
	return f.n.sent.Secure(ctx, sent.Key{App: app, Digest: digest}, from)
}

// triedForCopy is how many members are asked to keep a second copy of what was sent.
const triedForCopy = 3

// SpreadSent has another member fetch an archive that is here: the one that gets copies of this member's jobs, if it
// can.
func (f jobFiles) SpreadSent(ctx context.Context, app, digest string) []cluster.WorkerID {
	if f.n.o.Member == nil {
		return nil
	}
	self := f.n.o.Member.ID()
	others := jobMembers{f.n.far}.Heirs()
	for _, id := range others[:min(len(others), triedForCopy)] {
		far, known := f.n.o.Member.Other(id)
		if !known {
			continue
		}
		err := far.SecureSent(ctx, app, digest, self)
		if err == nil {
			return []cluster.WorkerID{self, id}
		}
		f.n.o.Log.WarnContext(ctx, "a member could not keep a copy of what a job is sent", "member", id, "err", err)
	}
	return []cluster.WorkerID{self}
}

// TaskFiles writes the files that an attempt left.
func (f jobFiles) TaskFiles(ctx context.Context, at cluster.WorkerID, l jobs.Life, w io.Writer) error {
	for i, own := range f.n.workers {
		if own.ID() == at {
			return f.n.runners[i].Files(ctx, l, w)
		}
	}
	if m := f.n.o.Member; m != nil {
		if far, known := m.Other(at); known {
			return far.TaskFiles(ctx, l, w)
		}
	}
	return fault.New(fault.Unavailable, fault.CodeLost, "the files are kept by worker %s, which is not a member any "+
		"more", at)
}

var _ batch.Sent = (*sent.Store)(nil)

// runFiles removes files of jobs that nobody needs any more, until ctx ends.
func (n *Node) runFiles(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { n.sent.Run(ctx); return nil })
	for _, s := range n.kept {
		g.Go(func() error { s.Run(ctx); return nil })
	}
}
