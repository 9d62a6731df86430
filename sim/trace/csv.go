package trace

import (
	"bytes"
	"io"
	"math"
	"strings"
)

// CSV reads jobs of equal tasks from lines with a heading, which names at least submit_s, tasks and duration_s: the
// form of the loads that Omega's simulator is compared on (EuroSys'13). Other columns are ignored. A heading with
// creation_time, scheduled_time and deletion_time is that of openb's list of pods: each is a job of one task, from its
// scheduling, or its creation if that is missing, until its deletion.
type CSV struct {
	l                       *lines
	submit, tasks, duration int // columns; -1 when there is none
	scheduled, deleted      int // of openb; -1 when there is none
	columns                 int
	durs                    []float64
	last                    float64
}

// NewCSV makes a reader of CSV text. name is for errors.
func NewCSV(name string, r io.Reader) *CSV {
	return &CSV{l: newLines(name, r), submit: -1, tasks: -1, duration: -1, scheduled: -1, deleted: -1}
}

// Next implements Source.
func (c *CSV) Next() (Job, error) {
	for {
		line, err := c.l.readLine()
		if err != nil {
			return Job{}, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		if c.columns == 0 {
			if err := c.readHeading(string(line)); err != nil {
				return Job{}, err
			}
			continue
		}
		return c.readJob(line)
	}
}

func (c *CSV) readHeading(line string) error {
	names := strings.Split(line, ",")
	for i, n := range names {
		switch strings.TrimSpace(n) {
		case "scheduled_time":
			c.scheduled = i
		case "deletion_time":
			c.deleted = i
		case "submit_s", "creation_time":
			c.submit = i
		case "tasks":
			c.tasks = i
		case "duration_s":
			c.duration = i
		}
	}
	if pods := c.submit >= 0 && c.scheduled >= 0 && c.deleted >= 0; !pods &&
		(c.submit < 0 || c.tasks < 0 || c.duration < 0) {
		return c.l.badLine("the heading is %.60q; it must name the columns submit_s, tasks and duration_s, or be that "+
			"of openb's pods", line)
	}
	c.columns = len(names)
	return nil
}

func (c *CSV) readJob(line []byte) (j Job, err error) {
	fields := bytes.Split(line, []byte(","))
	if len(fields) != c.columns {
		return j, c.l.badLine("it has %d fields, the heading %d", len(fields), c.columns)
	}
	if j.Submit, err = c.l.readNumber(bytes.TrimSpace(fields[c.submit]), "submit_s"); err != nil {
		return j, err
	}
	if j.Submit < c.last {
		return j, c.l.badLine("the job arrives at %g, before the one above it at %g; sort the trace by submit_s",
			j.Submit,
			c.last)
	}
	c.last = j.Submit
	if c.deleted >= 0 {
		return c.readPod(j, fields)
	}
	n, err := c.l.readNumber(bytes.TrimSpace(fields[c.tasks]), "tasks")
	if err != nil {
		return j, err
	}
	if n < 1 || n > MaxTasks || n != math.Trunc(n) {
		return j, c.l.badLine("tasks is %g; it must be a whole number from 1 to %d", n, MaxTasks)
	}
	if j.Mean, err = c.l.readNumber(bytes.TrimSpace(fields[c.duration]), "duration_s"); err != nil {
		return j, err
	}
	c.durs = c.durs[:0]
	for range int(n) {
		c.durs = append(c.durs, j.Mean)
	}
	j.Durations = c.durs
	return j, nil
}

// readPod makes a job of a line of openb's list.
func (c *CSV) readPod(j Job, fields [][]byte) (Job, error) {
	began := j.Submit
	var err error
	if f := bytes.TrimSpace(fields[c.scheduled]); len(f) > 0 {
		if began, err = c.l.readNumber(f, "scheduled_time"); err != nil {
			return j, err
		}
	}
	end, err := c.l.readNumber(bytes.TrimSpace(fields[c.deleted]), "deletion_time")
	if err != nil {
		return j, err
	}
	if end < began || began < j.Submit {
		return j, c.l.badLine("the pod is created at %g, scheduled at %g and deleted at %g; it must be in this order",
			j.Submit, began, end)
	}
	j.Mean = end - began
	c.durs = append(c.durs[:0], j.Mean)
	j.Durations = c.durs
	return j, nil
}
