package trace

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
)

// The events of Google's tables of 2011 (clusterdata-2011-2, format and schema, sections "Job and task life cycle" and
// "Machine events").
const (
	googleSubmit   = 0
	googleSchedule = 1
	googleLast     = 8 // updates are 7 and 8; 2 to 6 end a run

	googleNever  = math.MaxInt64 // the time of events after the trace
	googleFields = 6             // needed fields of a task event
	googleMost   = 1 << 25       // the most tasks that are kept
)

// Google reads Google's task_events tables of 2011 into jobs: a task's duration is that of its last run that ended in
// the trace, its job arrives when its first task was submitted, or when a job_events table says so. Tasks without a
// complete run, and jobs without other tasks, are skipped. Events are sorted by time and jobs overlap for weeks, so
// all tasks of a trace are kept in memory, 40 bytes each.
type Google struct {
	tasks []*lines
	jobs  []*lines
	made  []Job
	next  int
	read  bool
}

type googleJob struct {
	submit int64 // -1: unknown
	order  int
	begun  map[int64]int64 // start of a task's run, by index
	took   map[int64]int64 // duration of its last run
}

// NewGoogle makes a reader of tables in the order of their parts. Jobs' tables may be left out. names are for errors.
func NewGoogle(taskNames []string, tasks []io.Reader, jobNames []string, jobs []io.Reader) *Google {
	g := &Google{}
	for i, r := range tasks {
		g.tasks = append(g.tasks, newLines(taskNames[i], r))
	}
	for i, r := range jobs {
		g.jobs = append(g.jobs, newLines(jobNames[i], r))
	}
	return g
}

// Next implements Source.
func (g *Google) Next() (Job, error) {
	if !g.read {
		g.read = true
		if err := g.readAll(); err != nil {
			return Job{}, err
		}
	}
	if g.next == len(g.made) {
		return Job{}, io.EOF
	}
	g.next++
	return g.made[g.next-1], nil
}

func (g *Google) readAll() error {
	all := map[int64]*googleJob{}
	job := func(id int64) *googleJob {
		j := all[id]
		if j == nil {
			j = &googleJob{submit: -1, order: len(all), begun: map[int64]int64{}, took: map[int64]int64{}}
			all[id] = j
		}
		return j
	}
	count := 0
	for _, l := range g.jobs {
		if err := eachEvent(l, 4, 3, func(at int64, f [][]byte, kind int64) error {
			id, err := l.readWhole(f[2], "the job's number")
			if err == nil && kind == googleSubmit {
				job(id).submit = at
			}
			return err
		}); err != nil {
			return err
		}
	}
	for _, l := range g.tasks {
		if err := eachEvent(l, googleFields, 5, func(at int64, f [][]byte, kind int64) error {
			id, err := l.readWhole(f[2], "the job's number")
			if err != nil {
				return err
			}
			index, err := l.readWhole(f[3], "the task's index")
			if err != nil {
				return err
			}
			j := job(id)
			if _, known := j.begun[index]; !known && kind == googleSchedule {
				if count++; count > googleMost {
					return l.badLine("there are more than %d tasks; read fewer parts", googleMost)
				}
			}
			j.addEvent(at, index, kind)
			return nil
		}); err != nil {
			return err
		}
	}
	g.makeJobs(all)
	if len(g.made) == 0 && len(all) > 0 {
		return g.tasks[len(g.tasks)-1].badLine(
			"of %d jobs no task is seen to be scheduled and to end; read more parts "+
				"of task_events", len(all))
	}
	return nil
}

func (j *googleJob) addEvent(at, index, kind int64) {
	switch {
	case at == googleNever || kind >= 7:
	case kind == googleSubmit:
		if j.submit < 0 {
			j.submit = at
		}
	case kind == googleSchedule:
		j.begun[index] = at
	default:
		if began, ok := j.begun[index]; ok && began >= 0 && at >= began {
			j.took[index] = at - began
			j.begun[index] = -1
		}
	}
}

// makeJobs converts the tasks to jobs, in the order of their submission.
func (g *Google) makeJobs(all map[int64]*googleJob) {
	list := make([]*googleJob, 0, len(all))
	for _, j := range all {
		if len(j.took) > 0 {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *googleJob) int {
		return cmp.Or(cmp.Compare(a.submit, b.submit), cmp.Compare(a.order, b.order))
	})
	for _, j := range list {
		indices := make([]int64, 0, len(j.took))
		for i := range j.took {
			indices = append(indices, i)
		}
		slices.Sort(indices)
		out := Job{Submit: float64(max(0, j.submit)) / 1e6, Durations: make([]float64, 0, len(indices))}
		for _, i := range indices {
			d := float64(j.took[i]) / 1e6
			out.Mean += d
			out.Durations = append(out.Durations, d)
		}
		out.Mean /= float64(len(indices))
		g.made = append(g.made, out)
	}
}

// eachEvent calls f with the moment in microseconds, the fields and the kind of every event of a table, whose lines
// have at least least fields. It skips a first line with the columns' names.
func eachEvent(l *lines, least, kindAt int, f func(at int64, fields [][]byte, kind int64) error) error {
	last := int64(0)
	for {
		line, err := l.readLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || l.n == 1 && (line[0] < '0' || line[0] > '9') {
			continue
		}
		fields := bytes.Split(line, []byte(","))
		if len(fields) < least {
			return l.badLine("it has %d fields, and at least %d are needed", len(fields), least)
		}
		at, err := l.readWhole(fields[0], "the time stamp")
		if err != nil {
			return err
		}
		if at < last {
			return l.badLine("its time stamp %d is before that of the line above, %d", at, last)
		}
		if at != googleNever {
			last = at
			if float64(at)/1e6 > maxTime {
				return l.badLine("the time stamp is %d microseconds; it must be up to %g seconds", at, maxTime)
			}
		}
		kind, err := l.readWhole(fields[kindAt], "the event type")
		if err != nil {
			return err
		}
		if kind > googleLast {
			return l.badLine("the event type is %d; it is from 0 to %d", kind, googleLast)
		}
		if err := f(at, fields, kind); err != nil {
			return err
		}
	}
}

// readWhole reads a non-negative integer.
func (l *lines) readWhole(field []byte, what string) (int64, error) {
	v, err := strconv.ParseInt(string(field), 10, 64)
	if err != nil || v < 0 {
		return 0, l.badLine("%s is %.40q; it must be a whole number of at least 0", what, field)
	}
	return v, nil
}

// Machines summarises a machine_events table.
type Machines struct {
	Most   int     `json:"most"`   // most machines at once
	Last   int     `json:"last"`   // machines at the end
	Events int     `json:"events"` // additions, removals and updates
	CPU    float64 `json:"cpu"`    // at the end, in units of the largest machine
	Memory float64 `json:"memory"` // at the end, in units of the largest machine
}

// ReadMachines reads a machine_events table: time stamp, machine, event (0 added, 1 removed, 2 updated), platform, CPU,
// memory. name is for errors.
func ReadMachines(name string, r io.Reader) (Machines, error) {
	var m Machines
	type size struct{ cpu, memory float64 }
	have := map[int64]size{}
	l := newLines(name, r)
	err := eachEvent(l, 3, 2, func(_ int64, f [][]byte, kind int64) error {
		id, err := l.readWhole(f[1], "the machine's number")
		if err != nil {
			return err
		}
		if m.Events++; kind == 1 {
			delete(have, id)
			return nil
		}
		if kind > 2 {
			return l.badLine("the event type is %d; a machine's is 0, 1 or 2", kind)
		}
		var s size
		if len(f) >= 6 && len(f[4]) > 0 && len(f[5]) > 0 {
			if s.cpu, err = l.readNumber(f[4], "the CPU"); err != nil {
				return err
			}
			if s.memory, err = l.readNumber(f[5], "the memory"); err != nil {
				return err
			}
		}
		have[id] = s
		m.Most = max(m.Most, len(have))
		return nil
	})
	ids := make([]int64, 0, len(have))
	for id := range have {
		ids = append(ids, id)
	}
	slices.Sort(ids) // sums of floats depend on their order
	for _, id := range ids {
		m.CPU += have[id].cpu
		m.Memory += have[id].memory
	}
	m.Last = len(have)
	return m, err
}
