package gossip

import (
	"bytes"
	"regexp"
	"sync"

	"github.com/soukhq/souk/cluster"
)

// suspected is memberlist's one way of telling a suspicion of ours: its log. TestMemberlistTellsOfASuspicion fails
// when a version of memberlist says it otherwise.
var suspected = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // a constant
	return regexp.MustCompile(`^\[INFO\] memberlist: Suspect (\S+) has failed`)
})

// logWriter takes memberlist's log to ours, and its suspicions to the members.
type logWriter struct{ c *Cluster }

func (w logWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	if i := bytes.IndexByte(text, '['); i > 0 { // after the time, of which ours has one, too
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
