// Package trace reads what jobs were submitted and how long their tasks took: the .tr format of Hawk and Eagle, SWF,
// CSV, Google's tables of 2011, and generators of the papers' synthetic loads. Readers stream and keep no more than
// one job, except for Google's, whose jobs are spread over the whole table.
package trace

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/soukhq/souk/fault"
)

// Bounds on what a trace file may ask for.
const (
	MaxTasks = 1 << 22 // of one job
	maxLine  = 1 << 24 // bytes; the longest of the traces in use have 57,000
	maxTime  = 1e11    // seconds
)

// Job is one job of a trace. All times are seconds.
type Job struct {
	Submit    float64
	Mean      float64   // of the tasks, as stated in the trace: the estimate for schedulers
	Durations []float64 // one for each task; valid until the next call of Next
	User      int64     // whose it is: a number, or 0 where the trace does not say
}

// Source yields jobs in the order of their submission, and io.EOF after the last.
type Source interface {
	Next() (Job, error)
}

// lines reads lines of up to maxLine bytes, and counts them.
type lines struct {
	name string
	r    *bufio.Reader
	long []byte
	n    int
}

func newLines(name string, r io.Reader) *lines {
	return &lines{name: name, r: bufio.NewReaderSize(r, 1<<18)}
}

func (l *lines) readLine() ([]byte, error) {
	l.n++
	line, err := l.r.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	l.long = append(l.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= maxLine {
		line, err = l.r.ReadSlice('\n')
		l.long = append(l.long, line...)
	}
	switch {
	case len(l.long) > maxLine:
		return nil, l.badLine("the line is longer than %d bytes", maxLine)
	case errors.Is(err, io.EOF) && len(l.long) > 0:
		return l.long, nil
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fault.Wrap(err, fault.Invalid, CodeTrace, "%s, line %d: the file ends badly", l.name, l.n)
	}
	return l.long, err
}

func (l *lines) badLine(format string, args ...any) error {
	args = append([]any{l.name, l.n}, args...)
	return fault.New(fault.Invalid, CodeTrace, "%s, line %d: "+format, args...)
}

// readNumber reads a decimal number of at least 0; what names it in the error.
func (l *lines) readNumber(field []byte, what string) (float64, error) {
	v, err := strconv.ParseFloat(string(field), 64)
	if err != nil || !(v >= 0 && v <= maxTime) {
		return 0, l.badLine("%s is %.40q; it must be a number from 0 to %g", what, field, maxTime)
	}
	return v, nil
}

// cutField splits the next field off a line.
func cutField(line []byte) (first, rest []byte) {
	i := 0
	for i < len(line) && isBlank(line[i]) {
		i++
	}
	j := i
	for j < len(line) && !isBlank(line[j]) {
		j++
	}
	return line[i:j], line[j:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// TR reads the format of Hawk and Eagle: one job a line, `arrival n mean d1 ... dn`, sorted by arrival.
type TR struct {
	l    *lines
	durs []float64
	last float64
}

// NewTR makes a reader of .tr text. name is for errors.
func NewTR(name string, r io.Reader) *TR { return &TR{l: newLines(name, r)} }

// Next implements Source. It skips lines that are empty or begin with #.
func (t *TR) Next() (Job, error) {
	for {
		line, err := t.l.readLine()
		if err != nil {
			return Job{}, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return t.readJob(line)
		}
	}
}

func (t *TR) readJob(line []byte) (Job, error) {
	var j Job
	var err error
	f, rest := cutField(line)
	if j.Submit, err = t.l.readNumber(f, "the arrival"); err != nil {
		return j, err
	}
	if j.Submit < t.last {
		return j, t.l.badLine("the job arrives at %g, before the one above it at %g; sort the trace by arrival",
			j.Submit,
			t.last)
	}
	t.last = j.Submit
	f, rest = cutField(rest)
	n, err := strconv.Atoi(string(f))
	if err != nil || n < 1 || n > MaxTasks {
		return j, t.l.badLine("the number of tasks is %.40q; it must be a whole number from 1 to %d", f, MaxTasks)
	}
	if f, rest = cutField(rest); len(f) == 0 {
		return j, t.l.badLine("the mean is missing; a line is `arrival n mean d1 ... dn`")
	}
	if j.Mean, err = t.l.readNumber(f, "the mean"); err != nil {
		return j, err
	}
	t.durs = t.durs[:0]
	for {
		if f, rest = cutField(rest); len(f) == 0 {
			break
		}
		if len(t.durs) == n {
			return j, t.l.badLine("there are more durations than the %d tasks it announces", n)
		}
		d, err := t.l.readNumber(f, "a duration")
		if err != nil {
			return j, err
		}
		t.durs = append(t.durs, d)
	}
	if len(t.durs) != n {
		return j, t.l.badLine("it announces %d tasks and has %d durations", n, len(t.durs))
	}
	j.Durations = t.durs
	return j, nil
}
