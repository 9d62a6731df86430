package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Placed is one machine of a decision log, as an arrival of a trace. Times are seconds since the log's first decision.
type Placed struct {
	Submit   float64
	Duration float64           // until its end, or the log's end if its end is not in the log
	Open     bool              // its end is not in the log
	Want     cluster.Resources // the request's resources
	Batch    bool              // its band is below service
}

// MaxPlaced bounds the machines of a log.
const MaxPlaced = 1 << 24

// ReadDecisions reads the files of souk's decision log (docs/decisions/0015-decision-log.md), unpacked, as arrivals:
// one for each machine that a decision was made about, at the time of its first decision, whether it was placed or
// not. name is for errors. A log with a torn end is read up to there.
func ReadDecisions(name string, files ...io.Reader) ([]Placed, error) {
	g := &gathered{byID: map[string]*lived{}, last: math.Inf(-1), first: math.Inf(1)}
	for _, r := range files {
		if err := g.readFile(name, r); err != nil {
			return nil, err
		}
	}
	last, first, order := g.last, g.first, g.order
	out := make([]Placed, 0, len(order))
	for _, s := range order {
		p := Placed{Submit: s.at - first, Want: s.want, Batch: s.batch, Duration: s.end - s.at, Open: math.IsNaN(s.end)}
		if p.Open {
			p.Duration = last - s.at
		}
		p.Duration = max(0, p.Duration)
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b Placed) int {
		switch {
		case a.Submit < b.Submit:
			return -1
		case a.Submit > b.Submit:
			return 1
		}
		return 0
	})
	return out, nil
}

// lived is the state of one machine while a log is read.
type lived struct {
	at, end float64 // end is NaN while it is unknown
	want    cluster.Resources
	batch   bool
}

type gathered struct {
	byID        map[string]*lived
	order       []*lived
	last, first float64
}

// readFile reads one file of a log.
func (g *gathered) readFile(name string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<18)
	for n := 1; ; n++ {
		raw, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			raw = slices.Clone(raw)
			for errors.Is(err, bufio.ErrBufferFull) && len(raw) < maxLine {
				var more []byte
				more, err = in.ReadSlice('\n')
				raw = append(raw, more...)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // an incomplete last line before a torn end
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, CodeTrace,
				"%s, line %d: the decision log cannot be unpacked from here",
				name, n)
		}
		var line decision.Line
		if err := json.Unmarshal(raw, &line); err != nil {
			return fault.New(fault.Invalid, CodeTrace, "%s, line %d: it is no line of a decision log: %v", name, n, err)
		}
		if !g.takeLine(&line) {
			return fault.New(fault.Invalid, CodeTrace, "%s, line %d: it is about more than %d machines", name, n,
				MaxPlaced)
		}
	}
}

// takeLine handles a line; false: there are too many machines.
func (g *gathered) takeLine(l *decision.Line) bool {
	switch {
	case l.Decision != nil:
		d := l.Decision
		at := float64(d.At.UnixMicro()) / 1e6
		g.last, g.first = max(g.last, at), min(g.first, at)
		key := d.Request.App + "/" + d.Request.Machine
		if g.byID[key] == nil && d.Own == nil { // a refused start of an existing machine is no arrival
			s := &lived{at: at, end: math.NaN(), want: d.Request.Resources,
				batch: isBelowService(d.Request.Scheduling.BandName())}
			g.byID[key], g.order = s, append(g.order, s)
		}
	case l.End != nil:
		at := float64(l.End.At.UnixMicro()) / 1e6
		g.last = max(g.last, at)
		if s := g.byID[l.End.App+"/"+l.End.Machine]; s != nil {
			s.end = at
		}
	}
	return len(g.order) <= MaxPlaced
}

// isBelowService says whether a band is below that of services.
func isBelowService(b machine.Band) bool { return b == machine.BandFree || b == machine.BandBatch }

// decisions is a decision log as a Source: each machine is a job of one task.
type decisions struct {
	name string
	r    []io.Reader
	list []Placed
	next int
	read bool
	one  [1]float64
}

// NewDecisions makes a Source from a decision log. It reads the whole log before the first job, as machines' ends come
// later.
func NewDecisions(name string, files ...io.Reader) Source {
	return &decisions{name: name, r: files}
}

// Next implements Source.
func (d *decisions) Next() (Job, error) {
	if !d.read {
		var err error
		if d.list, err = ReadDecisions(d.name, d.r...); err != nil {
			return Job{}, err
		}
		d.read = true
	}
	if d.next == len(d.list) {
		return Job{}, io.EOF
	}
	p := &d.list[d.next]
	d.next++
	d.one[0] = p.Duration
	return Job{Submit: p.Submit, Mean: p.Duration, Durations: d.one[:]}, nil
}
