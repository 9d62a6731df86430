package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/sent"
)

// parcel is a file or directory of this host that a job's tasks are sent.
type parcel struct {
	path string
	name string // in the tasks' directories; jobs.StdinName: their input
}

// parcelsOf returns what the flags say is sent. done removes what was kept for it.
func parcelsOf(c *cli.Env, o *submitFlags) (all []parcel, done func(), err error) {
	done = func() {}
	for _, p := range o.send {
		whole, err := filepath.Abs(p)
		if err != nil {
			return nil, done, fault.Wrap(err, fault.Invalid, fault.CodePath, "%s cannot be found", p)
		}
		if filepath.Base(whole) == "/" {
			return nil, done, cli.Usagef("/ is not sent: name the directories that the tasks need")
		}
		all = append(all, parcel{whole, filepath.Base(whole)})
	}
	if o.stdin != jobs.StdinName {
		return all, done, nil
	}
	if f, is := c.In.(*os.File); is && cli.IsTerminal(f) {
		return nil, done, cli.Usagef("--stdin - sends what comes in here, and that is a terminal: pipe something in, " +
			"as in souk submit --stdin - -- wc < data.txt")
	}
	f, err := os.CreateTemp("", "souk-stdin-")
	if err != nil {
		return nil, done, fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "what comes in cannot be kept")
	}
	done = func() { _ = os.Remove(f.Name()) }
	_, err = io.Copy(f, c.In)
	if err = cmp.Or(err, f.Close()); err != nil {
		return nil, done, fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "what comes in cannot be kept")
	}
	return append(all, parcel{f.Name(), jobs.StdinName}), done, nil
}

// checkProgram refuses a program that is sent, and named as one that is installed on the workers.
func checkProgram(argv []string, all []parcel) error {
	for _, p := range all {
		if len(argv) > 0 && argv[0] == p.name && p.name != jobs.StdinName {
			return cli.Usagef("%s is looked for among the programs of the workers: write ./%[1]s for the one that is "+
				"sent",
				p.name)
		}
	}
	return nil
}

// noDigest stands for the digest of what has not been read yet.
const noDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// sentOf returns what is sent without its digests, so that a job can be checked before anything large is read.
func sentOf(all []parcel) (out []jobs.Sent) {
	for _, p := range all {
		out = append(out, jobs.Sent{Name: p.name, Digest: noDigest})
	}
	return out
}

// sendParcels sends what the member does not have yet, and completes what the job says of it.
func sendParcels(ctx context.Context, c *cli.Env, cl *client.Client, all []parcel, spec *jobs.Spec) error {
	for i, p := range all {
		sum := sha256.New()
		size := &counter{w: sum}
		if err := sent.WriteArchive(size, p.path, p.name); err != nil {
			return err
		}
		x := &spec.Sent[i]
		x.Digest, x.Bytes = "sha256:"+hex.EncodeToString(sum.Sum(nil)), size.n
		_, err := cl.Sent(ctx, spec.App, x.Digest)
		if fault.Is(err, fault.NotFound) {
			err = sendOne(ctx, c, cl, p, spec.App, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sendOne(ctx context.Context, c *cli.Env, cl *client.Client, p parcel, app string, x *jobs.Sent) error {
	pr, pw := io.Pipe()
	defer pr.Close()
	shown := newSending(c, p.name, x.Bytes)
	defer shown.clear()
	broke := make(chan error, 1)
	go func() {
		err := sent.WriteArchive(&counter{w: pw, report: shown.show}, p.path, p.name)
		pw.CloseWithError(err) // never fails
		broke <- err
	}()
	_, err := cl.SendFiles(ctx, app, x.Digest, pr)
	_ = pr.Close()
	if cause := fault.As(<-broke); err != nil && cause != nil && cause.Code != "" && cause.Kind != fault.Internal {
		return cause // the files could not be read
	}
	return err
}

// counter counts what is written.
type counter struct {
	w      io.Writer
	n      int64
	report func(n int64) // nil: nobody is interested
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.n += int64(n); c.report != nil {
		c.report(c.n)
	}
	return n, err
}

// sending shows on a terminal how much of a file was sent.
type sending struct {
	c    *cli.Env
	on   bool
	name string
	all  int64
	last time.Time
}

func newSending(c *cli.Env, name string, all int64) *sending {
	if name == jobs.StdinName {
		name = "what came in"
	}
	return &sending{c: c, on: !c.JSON && cli.IsTerminal(c.Err), name: name, all: all}
}

// show redraws the line, at most ten times a second.
func (s *sending) show(n int64) {
	if !s.on || time.Since(s.last) < 100*time.Millisecond {
		return
	}
	s.last = time.Now()
	text := fmt.Sprintf("sending %s: %s of %s", s.name, cli.Bytes(n), cli.Bytes(s.all))
	if most := s.c.ColumnsOf(s.c.Err) - 1; most > 0 {
		text = cli.CutText(text, most)
	}
	fmt.Fprintf(cli.Raw(s.c.Err), "\r\x1b[K%s", text)
}

func (s *sending) clear() {
	if s.on && !s.last.IsZero() {
		fmt.Fprint(cli.Raw(s.c.Err), "\r\x1b[K")
	}
}
