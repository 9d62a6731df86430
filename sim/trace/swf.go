package trace

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strconv"
)

// SWF reads the Standard Workload Format of the Parallel Workloads Archive, version 2: 18 fields a line, `;` comments.
// A job of p processors becomes p tasks of its run time, as souk has one task to a slot; so a rigid job's tasks count
// as independent. Its mean is the user's requested time, if there is one. Jobs that never ran are skipped.
type SWF struct {
	l    *lines
	durs []float64
	last float64
}

// NewSWF makes a reader of SWF text. name is for errors.
func NewSWF(name string, r io.Reader) *SWF { return &SWF{l: newLines(name, r)} }

// Next implements Source.
func (s *SWF) Next() (Job, error) {
	for {
		line, err := s.l.readLine()
		if err != nil {
			return Job{}, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == ';' {
			continue
		}
		j, ran, err := s.readJob(line)
		if err != nil || ran {
			return j, err
		}
	}
}

func (s *SWF) readJob(line []byte) (j Job, ran bool, err error) {
	var v [9]float64 // number, submit, wait, run, processors, cpu, memory, processors asked, time asked
	rest := line
	for i := range v {
		var f []byte
		if f, rest = cutField(rest); len(f) == 0 {
			return j, false, s.l.badLine("it has %d fields; a line of SWF has 18", i)
		}
		if bytes.HasPrefix(f, []byte("-")) {
			v[i] = -1 // not known
			continue
		}
		if v[i], err = s.l.readNumber(f, "a field"); err != nil {
			return j, false, err
		}
	}
	submit, run, procs, asked := v[1], v[3], v[4], v[8]
	if procs < 1 {
		procs = v[7]
	}
	if run < 0 || procs < 1 || submit < 0 {
		return j, false, nil
	}
	if procs > MaxTasks || procs != math.Trunc(procs) {
		return j, false, s.l.badLine("it has %g processors; souk takes whole numbers up to %d", procs, MaxTasks)
	}
	s.last = max(s.last, submit) // some archives are out of order by seconds
	if asked <= 0 {
		asked = run
	}
	s.durs = slices.Grow(s.durs[:0], int(procs))
	for range int(procs) {
		s.durs = append(s.durs, run)
	}
	return Job{Submit: s.last, Mean: asked, Durations: s.durs, User: userIn(rest)}, true, nil
}

// userIn returns the user of a job by the fields from the tenth on; 0: not known.
func userIn(rest []byte) int64 {
	var f []byte
	for range 3 { // memory asked, status, user
		f, rest = cutField(rest)
	}
	n, err := strconv.ParseInt(string(f), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
