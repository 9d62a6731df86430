package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// Bounds of suspicion.
const (
	suspectServices = 3                // services with machines that die at this worker only
	suspectFor      = 15 * time.Minute // a machine must have died this recently
	suspectShare    = 10               // at most one in this many workers is cordoned for it
)

// Blamed reports whether a release is at fault for machines that die again and again: held machines of one group are
// at two workers or more. at returns a machine's worker, "" if it does not count.
func Blamed(held []release.Held, at func(machine string) cluster.WorkerID) bool {
	workers := map[cluster.WorkerID]bool{}
	for _, h := range held {
		if w := at(h.Machine); w != "" {
			workers[w] = true
		}
	}
	return len(workers) > 1
}

// Suspect is a worker that seems to be at fault for machines that die there.
type Suspect struct {
	Worker cluster.WorkerID
	Why    string // one sentence
}

// Suspects returns the workers at which machines of three services or more die again and again, while each such
// service has a ready machine elsewhere and none that dies there. cordoned are the workers that are already cordoned
// for this; workers is the number of all. Together at most a tenth of all workers is returned, so that a fault that
// all releases share cannot cordon the cluster.
func Suspects(now time.Time, services map[string][]release.Standing, workers int,
	cordoned map[cluster.WorkerID]bool) (out []Suspect) {
	dying := map[cluster.WorkerID][]string{}
	for app, list := range services {
		if w := diesAt(now, list); w != "" && !cordoned[w] {
			dying[w] = append(dying[w], app)
		}
	}
	for _, w := range slices.SortedFunc(maps.Keys(dying), func(a, b cluster.WorkerID) int {
		return cmp.Or(cmp.Compare(len(dying[b]), len(dying[a])), cmp.Compare(a, b))
	}) {
		apps := dying[w]
		if len(apps) < suspectServices || len(cordoned)+len(out) >= workers/suspectShare {
			break
		}
		slices.Sort(apps)
		out = append(out, Suspect{w, fmt.Sprintf(
			"machines of %d services die again and again here and do well elsewhere: %s", len(apps),
			strings.Join(apps[:min(len(apps), 5)], ", "))})
	}
	return out
}

// diesAt returns the only worker at which machines of a service die again and again, while others are ready elsewhere;
// "" if there is none.
func diesAt(now time.Time, list []release.Standing) (at cluster.WorkerID) {
	well := false
	for i := range list {
		m := &list[i]
		switch {
		case m.Unheard, m.Run != "":
		case m.Loops && !m.Ready && now.Sub(m.Updated) < suspectFor:
			if at != "" && at != m.Worker {
				return ""
			}
			at = m.Worker
		case m.Ready:
			well = true
		}
	}
	if !well || slices.ContainsFunc(list, func(m release.Standing) bool { return m.Ready && m.Worker == at }) {
		return ""
	}
	return at
}
