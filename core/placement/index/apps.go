package index

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// appRows is the workers that run an app, with the number of its machines on each. Scores and grants read it instead
// of the Apps maps in the workers' records, whose scattered memory makes each lookup several cache misses.
type appRows struct {
	rows []rowCount
	at   map[int32]int32 // place of each row in rows, kept for more than searchedApps rows
}

// rowCount is the number of machines of an app on a row's worker, more than 0.
type rowCount struct{ row, machines int32 }

// searchedApps is up to how many rows are searched linearly.
const searchedApps = 128

// findRow returns the place of a row; -1 if the app does not run there.
func (a *appRows) findRow(i int32) int32 {
	if a == nil {
		return -1
	}
	if a.at != nil {
		if k, there := a.at[i]; there {
			return k
		}
		return -1
	}
	for k := range a.rows {
		if a.rows[k].row == i {
			return int32(k)
		}
	}
	return -1
}

// machinesAt returns how many machines of the app run on a row's worker.
func (a *appRows) machinesAt(i int32) int {
	if k := a.findRow(i); k >= 0 {
		return int(a.rows[k].machines)
	}
	return 0
}

// setMachines sets how many machines of the app a row has; k is its place.
func (a *appRows) setMachines(k, i int32, n int) {
	switch last := int32(len(a.rows)) - 1; {
	case k >= 0 && n > 0:
		a.rows[k].machines = int32(n)
	case k >= 0:
		moved := a.rows[last]
		a.rows[k], a.rows = moved, a.rows[:last]
		if a.at != nil {
			a.at[moved.row] = k
			delete(a.at, i)
		}
	case n > 0:
		a.rows = append(a.rows, rowCount{i, int32(n)})
		if a.at != nil {
			a.at[i] = last + 1
		} else if len(a.rows) > searchedApps {
			a.at = make(map[int32]int32, 2*searchedApps)
			for k, r := range a.rows {
				a.at[r.row] = int32(k)
			}
		}
	}
}

// appOf returns the workers that run an app; nil if none does.
func (x *Index) appOf(app string) *appRows {
	if x.scratch.appRows != nil && x.scratch.app == app {
		return x.scratch.appRows
	}
	a := x.apps[app]
	x.scratch.app, x.scratch.appRows = app, a
	return a
}

// rowsRunning returns the rows that run an app.
func (x *Index) rowsRunning(app string) []rowCount {
	if a := x.appOf(app); a != nil {
		return a.rows
	}
	return nil
}

// setApp sets how many machines of an app a row has.
func (x *Index) setApp(app string, i int32, n int) {
	a := x.appOf(app)
	x.setAppAt(app, a, a.findRow(i), i, n)
}

func (x *Index) setAppAt(app string, a *appRows, k, i int32, n int) {
	if a == nil {
		if n <= 0 {
			return
		}
		a = &appRows{}
		x.apps[app], x.scratch.app, x.scratch.appRows = a, app, a
	}
	if a.setMachines(k, i, n); len(a.rows) == 0 {
		delete(x.apps, app)
		x.scratch.appRows = nil
	}
}

// appChange is a change of a record's Apps that is not in the map yet.
type appChange struct {
	app      string
	machines int // 0: no machine is left
}

// maxAppChanges bounds the pending changes of a row: beyond it, its map is updated.
const maxAppChanges = 8

// changeApp changes the number of an app's machines on a row. The record's map is updated later: see wholeRecord.
func (x *Index) changeApp(app string, i int32, by int) {
	a := x.appOf(app)
	k := a.findRow(i)
	n := by
	if k >= 0 {
		n += int(a.rows[k].machines)
	}
	n = max(0, n)
	x.setAppAt(app, a, k, i, n)
	s := &x.rows[i]
	if len(s.late) == maxAppChanges {
		x.wholeRecord(i)
	}
	if s.late == nil {
		s.late = make([]appChange, 0, maxAppChanges)
	}
	s.late = append(s.late, appChange{app, n})
}

// wholeRecord returns a row's record with its Apps map up to date.
func (x *Index) wholeRecord(i int32) *cluster.Record {
	s := &x.rows[i]
	if len(s.late) == 0 {
		return &s.rec
	}
	s.ownMaps()
	for _, c := range s.late {
		if c.machines > 0 {
			s.rec.Apps[c.app] = c.machines
		} else {
			delete(s.rec.Apps, c.app)
		}
	}
	clear(s.late)
	s.late = s.late[:0]
	return &s.rec
}

// ownMaps copies the maps and lists that grants change, so that the record given to Update stays unchanged.
func (s *row) ownMaps() {
	if s.owns {
		return
	}
	s.rec.GPUs = slices.Clone(s.rec.GPUs)
	if s.rec.Apps, s.owns = maps.Clone(s.rec.Apps), true; s.rec.Apps == nil {
		s.rec.Apps = map[string]int{}
	}
}
