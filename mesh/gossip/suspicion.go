package gossip

import (
	"bytes"
	"regexp"
	"sync"

	"github.com/soukhq/souk/cluster"
)

// suspected matches the log line in which memberlist reports a suspicion; memberlist has no other way.
// TestMemberlistLogsASuspicion fails if a version of memberlist changes the line.
var suspected = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // a constant
	return regexp.MustCompile(`^\[INFO\] memberlist: Suspect (\S+) has failed`)
})

// logWriter forwards memberlist's log to ours, and its suspicions to the membership.
type logWriter struct{ c *Cluster }

func (w logWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	if i := bytes.IndexByte(text, '['); i > 0 { // skip memberlist's time: our log adds its own
		text = text[i:]
	}
	if m := suspected().FindSubmatch(text); m != nil {
		w.c.members.noteSuspicion(cluster.WorkerID(m[1]))
	}
	level, rest, _ := bytes.Cut(text, []byte("] memberlist: "))
	switch string(level) {
	case "[ERR", "[WARN":
		w.c.odd.Info("memberlist: "+string(rest), "member", w.c.o.Self)
	default:
		w.c.o.Log.Debug("memberlist: "+string(rest), "member", w.c.o.Self)
	}
	return len(line), nil
}
