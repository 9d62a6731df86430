package batch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// attemptLog is a file of the attempts that were given out, written before a worker gets them, so that no attempt
// number is used twice: a buyer that was killed cannot know which grants arrived. Writes survive a kill. If the host goes
// down, which Boot shows, the next attempt of each task skips one number. So of each task at most one attempt may be in
// lines that are not on the disk: first attempts are not fsynced, later ones are.
type attemptLog struct {
	path  string
	write journal.Writing
	f     *os.File
	size  int64
	lines int
	live  int // lines in use when the file was last rewritten
	buf   []byte
	again bool  // buf has an attempt that is not its task's first
	disk  int64 // bytes of the file that are on the disk
}

const (
	attemptsFile    = "given"
	attemptLine     = "%s %d %d %s .\n" // job, index, attempt, worker
	maxAttemptLines = 20_000            // unused lines, beyond which the file is rewritten
)

// openAttemptLog calls f with each attempt in the file. It skips torn or damaged lines.
func openAttemptLog(dir string, write journal.Writing,
	f func(job string, index, attempt int, worker cluster.WorkerID)) (*attemptLog, error) {
	g := &attemptLog{path: filepath.Join(dir, attemptsFile), write: write}
	raw, err := os.ReadFile(g.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, g.wrapFault(err)
	}
	for line := range bytes.Lines(raw) {
		var job, worker string
		var index, attempt int
		if n, err := fmt.Sscanf(string(line), attemptLine, &job, &index, &attempt, &worker); err == nil && n == 4 {
			f(job, index, attempt, cluster.WorkerID(worker))
		}
	}
	return g, nil
}

func (g *attemptLog) wrapFault(err error) error {
	return fault.Wrap(err, fault.Unavailable, codeGiven, "the file %s, which records the tasks that were handed "+
		"out, cannot be used",
		g.path)
}

// noteGrants writes the grants of orders to the file.
func (g *attemptLog) noteGrants(orders []*jobs.Orders) error {
	g.buf, g.again = g.buf[:0], false
	for _, o := range orders {
		for _, t := range o.Grants {
			g.buf = fmt.Appendf(g.buf, attemptLine, t.Life.Job, t.Life.Index, t.Life.Attempt, o.Worker)
			g.lines++
			g.again = g.again || jobs.TryOf(t.Life.Attempt) > 1
		}
	}
	if len(g.buf) == 0 {
		return nil
	}
	if err := g.write(g.appendBuffer); err != nil {
		return g.wrapFault(err)
	}
	return nil
}

// appendBuffer appends buf, completely or not at all: half a line would hide the next one.
func (g *attemptLog) appendBuffer() error {
	n, err := g.f.Write(g.buf)
	if err != nil && n > 0 {
		return errors.Join(err, g.f.Truncate(g.size))
	}
	g.size += int64(n)
	if err != nil || !g.again {
		return err
	}
	if err = g.f.Sync(); err == nil {
		g.disk = g.size
	}
	return err
}

// needsRewrite reports whether most lines of the file are unused.
func (g *attemptLog) needsRewrite() bool { return g.lines > 2*g.live+maxAttemptLines }

// rewriteFile replaces the file by one with only the attempts still in use.
func (g *attemptLog) rewriteFile(each func(f func(job string, index, attempt int, worker cluster.WorkerID))) error {
	return g.write(func() error { return g.rewriteOnce(each) })
}

func (g *attemptLog) rewriteOnce(each func(f func(job string, index, attempt int, worker cluster.WorkerID))) error {
	f, err := os.OpenFile(g.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return g.wrapFault(err)
	}
	w, lines, size := bufio.NewWriter(f), 0, 0
	each(func(job string, index, attempt int, worker cluster.WorkerID) {
		n, _ := fmt.Fprintf(w, attemptLine, job, index, attempt, worker) // Flush returns the error
		lines, size = lines+1, size+n
	})
	if err = errors.Join(w.Flush(), f.Sync()); err == nil {
		err = os.Rename(g.path+".new", g.path)
	}
	if err == nil {
		err = journal.SyncDir(g.path)
	}
	if err != nil {
		return g.wrapFault(errors.Join(err, f.Close()))
	}
	err = g.close()
	g.f, g.size, g.disk, g.lines, g.live = f, int64(size), int64(size), lines, lines
	return err
}

func (g *attemptLog) close() error {
	if g.f == nil {
		return nil
	}
	return g.f.Close()
}
