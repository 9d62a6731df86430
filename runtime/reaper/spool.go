package reaper

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/runtime/reaper/output"
)

// outputs is the destination of the machines' output.
type outputs struct {
	dir   string // the reaper's directory
	log   *slog.Logger
	spool *output.Spool // nil: it could not be opened
}

const spoolDir = "spool"

// openOutputs opens the spool, and moves output that the previous reaper left there to the logs of lives that are over.
// Output of running lives stays for adoptLife.
func openOutputs(dir string, log *slog.Logger, machines map[string]*machine, sameBoot bool) *outputs {
	o := &outputs{dir: dir, log: log}
	spool, err := output.OpenSpool(filepath.Join(dir, spoolDir))
	if err != nil {
		log.Warn("output is carried in memory, and a piece of it is lost if the reaper is killed", "err", err)
		return o
	}
	o.spool = spool
	spool.Left(func(src output.Source, logBytes int64, logFiles int) {
		m := machines[src.Machine]
		switch {
		case m == nil || !sameBoot:
			spool.Forget(src)
			return
		case m.life != nil && m.life.attempt == src.Attempt:
			return
		}
		l := &life{m: m, attempt: src.Attempt}
		l.log = output.Open(LogDir(dir, m.id), logBytes, logFiles, m.notifyWatchers)
		o.sinkFor(l, src.Stream).Cut(time.Now())
		if err := l.log.Close(); err != nil {
			log.Warn("a log could not be closed", "machine", m.id, "err", err)
		}
	})
	return o
}

// sinkFor returns the writer of one stream of a life.
func (o *outputs) sinkFor(l *life, stream string) *output.Sink {
	s, err := o.spool.Sink(l.log, output.Source{Machine: l.m.id, Attempt: l.attempt, Stream: stream})
	if err != nil {
		o.log.Error("output was lost", "machine", l.m.id, "stream", stream, "err", err)
	}
	return s
}
