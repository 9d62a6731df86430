package placement

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
)

// asLarge reports whether want reaches keep in any dimension that has headroom: then it is one of the large requests
// that the headroom is for.
func asLarge(want, keep cluster.Resources) bool {
	for _, d := range keep.Dims() {
		if d.Amount > 0 && want.Get(d.Name) >= d.Amount {
			return true
		}
	}
	return false
}

// judgeGPUs judges the devices, if the worker lists them: a part of a GPU must be free on one device, and whole GPUs
// need whole devices.
func judgeGPUs(r *Request, w *cluster.Record, out *judging) {
	want := r.Resources.GPU
	if want <= 0 || len(w.GPUs) == 0 {
		return // workers without a device list have kinds as named resources: gpu.a100
	}
	var kinds, fitting int64
	for _, g := range w.GPUs {
		if r.GPUKind != "" && g.Kind != r.GPUKind {
			continue
		}
		kinds++
		if g.Free >= min(want, 1000) {
			fitting++
		}
	}
	need := max(1, want/1000)
	parts := want > 1000 && want%1000 != 0
	enough := fitting >= need || want > w.Free().GPU // judgeResources reports the second
	switch {
	case (kinds >= need || r.GPUKind == "") && !parts && enough:
		// they fit
	case !out.refuseClause():
		return
	case kinds < need && r.GPUKind != "":
		out.addRefusal(true, CodeGPUKind, fmt.Sprintf("%d of kind %s", need, r.GPUKind), GPUText(w))
	case parts:
		out.addRefusal(true, CodeGPUDevice, fmt.Sprintf("%dm of GPUs", want),
			"whole devices; more than one is given out whole")
	default:
		out.addRefusal(kinds < need, CodeGPUDevice, fmt.Sprintf("%d devices with %dm free each", need, min(want, 1000)),
			fmt.Sprintf("%d such", fitting)+sickText(w, r.GPUKind))
	}
}

// sickText is appended to what a GPU clause had: the number of unhealthy devices; "" if there are none.
func sickText(w *cluster.Record, kind string) string {
	n, why := 0, ""
	for i := range w.GPUs {
		if g := &w.GPUs[i]; g.Health != "" && (kind == "" || g.Kind == kind) {
			n++
			why = g.Health
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d not healthy: %s)", n, why)
}

// GPUText prints the devices of a worker by kind: "4 a100, 2 t4"; "none that are told apart" if it lists none.
func GPUText(w *cluster.Record) string {
	if len(w.GPUs) == 0 {
		return "no GPUs that are told apart"
	}
	count := map[string]int{}
	for _, g := range w.GPUs {
		count[g.Kind]++
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, strconv.Itoa(count[k])+" "+k)
	}
	return strings.Join(parts, ", ")
}

// judgeAttributes judges both sides: the request's requirements on the worker, and the worker's on the request.
func judgeAttributes(r *Request, w *cluster.Record, out *judging) {
	for i := range r.Scheduling.Require {
		q := &r.Scheduling.Require[i]
		v, there := w.Attribute(q.Attribute)
		if q.Of(v, there) != cluster.Met && out.refuseClause() {
			out.addRefusal(true, CodeRequirement, q.String(), hadText(q, v, there))
		}
	}
	for i := range w.Require {
		q := &w.Require[i]
		v, there := r.Label(q.Attribute)
		if q.Of(v, there) != cluster.Met && out.refuseClause() {
			out.addRefusal(true, CodeWorkerRequires, "a request with "+q.String(), hadText(q, v, there))
		}
	}
	for _, reserved := range w.Reserved {
		if !slices.Contains(r.Scheduling.Tolerate, reserved) && out.refuseClause() {
			out.addRefusal(true, CodeReserved, "a worker that is not reserved", "reserved for "+reserved)
		}
	}
}

// Undefined is the prefix of what a clause had if the attribute does not exist; its name follows.
const Undefined = "undefined: there is no "

// hadText describes the value that was found. A missing value, or one of another type, is called undefined.
func hadText(q *cluster.Requirement, v cluster.Value, there bool) string {
	switch {
	case !there:
		return Undefined + q.Attribute
	case q.Of(v, true) == cluster.Undefined:
		return "undefined: " + q.Attribute + " is the " + v.Type() + " " + v.String()
	}
	return v.String()
}

// Label returns a label of the request that a worker's requirement may read: its own labels, and the built-in app,
// namespace, band, priority, image, gpu_kind and unix_user, which its own cannot hide.
func (r *Request) Label(name string) (cluster.Value, bool) {
	switch name {
	case "app":
		return cluster.Text(r.App), true
	case "namespace":
		return cluster.Text(r.Namespace), true
	case "band":
		return cluster.Text(string(r.Scheduling.BandName())), true
	case "priority":
		return cluster.Number(float64(r.Scheduling.Priority)), true
	case "image":
		return cluster.Text(r.Image), true
	case "gpu_kind":
		return cluster.Text(r.GPUKind), true
	case "unix_user":
		return cluster.Text(r.UnixUser), true
	}
	v, ok := r.Scheduling.Labels[name]
	return v, ok
}

// judgeUnixUser judges whether the worker runs anything as the request's Unix user.
func judgeUnixUser(r *Request, w *cluster.Record, out *judging) {
	if r.UnixUser == "" {
		return
	}
	text, there := w.Attributes[cluster.UnixUsersAttribute]
	if s, is := text.Any().(string); there && is && cluster.AdmitsUnixUser(s, r.UnixUser) || !out.refuseClause() {
		return
	}
	had := "the worker runs nothing as a Unix user"
	if there {
		had = "the worker runs programs as " + text.String() + " only"
	}
	out.addRefusal(true, CodeUnixUser, r.UnixUser, had)
}

// judgeNeighbours judges which other machines run where: required affinities and anti-affinities, and spreads with a
// largest skew.
func judgeNeighbours(r *Request, w *cluster.Record, out *judging) {
	for i := range r.Scheduling.Affinity {
		a := &r.Scheduling.Affinity[i]
		if a.Weight != 0 {
			continue
		}
		near := r.isNear(i, w)
		if near != a.Anti || !out.refuseClause() {
			continue
		}
		who := "app " + a.App
		if a.Machine != "" {
			who = "machine " + a.Machine
		}
		if a.Anti {
			out.addRefusal(false, CodeAntiAffinity, "away from "+who+withinSuffix(a.Within), "it is here")
		} else {
			out.addRefusal(false, CodeAffinity, "near to "+who+withinSuffix(a.Within), "it is not here")
		}
	}
	for i := range r.Scheduling.Spread {
		sp := &r.Scheduling.Spread[i]
		if sp.MaxSkew == 0 {
			continue
		}
		v, there := w.Attribute(sp.Attribute)
		if !there {
			if out.refuseClause() {
				out.addRefusal(true, CodeSpread, "a worker with the attribute "+sp.Attribute, "undefined: there is no "+
					sp.Attribute)
			}
			continue
		}
		if fewest := r.Fewest(i); !r.WithinSkew(i, fewest, v.String()) && out.refuseClause() {
			out.addRefusal(false, CodeSpread, fmt.Sprintf("at most %d more of app %s on one %s than on another",
				sp.MaxSkew,
				r.App, sp.Attribute),
				fmt.Sprintf("%d on %s, %d where there are fewest and it may go", r.placedAt(i, v.String()), v, fewest))
		}
	}
}

func withinSuffix(attribute string) string {
	if attribute == "" {
		return ""
	}
	return " (same " + attribute + ")"
}

// isNear reports whether affinity i is met at worker w. For the worker itself, w is newer than Fleet.
func (r *Request) isNear(i int, w *cluster.Record) bool {
	a := &r.Scheduling.Affinity[i]
	if a.App != "" && a.Within == "" {
		return w.Apps[a.App] > 0
	}
	if i >= len(r.Fleet.Affinity) {
		return false
	}
	name := a.Within
	if name == "" {
		name = "worker"
	}
	v, there := w.Attribute(name)
	return there && slices.Contains(r.Fleet.Affinity[i], v)
}

// Fewest returns the smallest number of the app's machines that any value of spread i has; 0 if nothing is known.
func (r *Request) Fewest(i int) int {
	if i >= len(r.Fleet.Spread) || len(r.Fleet.Spread[i]) == 0 {
		return 0
	}
	fewest := math.MaxInt
	for _, n := range r.Fleet.Spread[i] {
		fewest = min(fewest, n)
	}
	return fewest
}

// WithinSkew reports whether a value of spread i may get one more machine, if fewest is the smallest number of any
// value.
func (r *Request) WithinSkew(i, fewest int, value string) bool {
	return r.placedAt(i, value)+1-fewest <= r.Scheduling.Spread[i].MaxSkew
}

// placedAt returns how many machines of the app a value of spread i has.
func (r *Request) placedAt(i int, value string) int {
	if i >= len(r.Fleet.Spread) {
		return 0
	}
	return r.Fleet.Spread[i][value]
}

// Resolve fills in the request's Fleet. where returns the worker of a machine, or "" if it is unknown; where may be
// nil. The given request is not changed.
func Resolve(r Request, view cluster.View, where func(machine string) cluster.WorkerID) Request {
	if len(r.Scheduling.Affinity) == 0 && len(r.Scheduling.Spread) == 0 {
		return r
	}
	r.Fleet = Fleet{Affinity: make([][]cluster.Value, len(r.Scheduling.Affinity)),
		Spread: make([]map[string]int, len(r.Scheduling.Spread))}
	for i, a := range r.Scheduling.Affinity {
		var home cluster.WorkerID
		if a.Machine != "" && where != nil {
			home = where(a.Machine)
		}
		name := a.Within
		if name == "" {
			name = "worker"
		}
		for j := range view.Workers {
			w := &view.Workers[j]
			if (a.App != "" && w.Apps[a.App] > 0) || (a.Machine != "" && home != "" && w.Worker == home) {
				if v, there := w.Attribute(name); there && !slices.Contains(r.Fleet.Affinity[i], v) {
					r.Fleet.Affinity[i] = append(r.Fleet.Affinity[i], v)
				}
			}
		}
	}
	for i, sp := range r.Scheduling.Spread {
		counts, open := map[string]int{}, map[string]bool{}
		for j := range view.Workers {
			w := &view.Workers[j]
			if v, there := w.Attribute(sp.Attribute); there {
				counts[v.String()] += w.Apps[r.App]
				open[v.String()] = open[v.String()] || sp.MaxSkew == 0 || r.OpenAt(w)
			}
		}
		maps.DeleteFunc(counts, func(v string, _ int) bool { return !open[v] })
		r.Fleet.Spread[i] = counts
	}
	return r
}

// OpenAt reports whether a worker may take the request as soon as it has room: it is ready, in an accepted region,
// large enough, has the volumes, and neither side's requirements nor a reservation rule it out. A required spread
// counts only the values of such workers: a cordoned worker's value would stay empty, and would keep the next machine
// off all others. A full worker counts, since it has room again when something ends.
func (r *Request) OpenAt(w *cluster.Record) bool {
	if w.State != cluster.Ready || !r.Resources.Fits(w.Capacity) ||
		len(r.Regions) > 0 && regionNearness(r.Regions, w.Region) < 0 {
		return false
	}
	for _, id := range r.Volumes {
		if _, here := w.Volumes[id]; !here {
			return false
		}
	}
	j := judging{brief: true}
	judgeAttributes(r, w, &j)
	return !j.refused
}
