package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/soukhq/souk/fault"
)

// Shape is the parameters of a generated load.
type Shape struct {
	Name  string
	Jobs  int
	Slots int     // of the cluster for the load
	Load  float64 // share of the slots that is busy on average
	Seed  uint64
}

// mix is one class of jobs of a shape: its number per hundred jobs, and log-normal distributions of their mean task
// durations and numbers of tasks.
type mix struct {
	share       float64
	mean, tasks float64 // medians
	sigma       float64 // of both logarithms
}

// shapeClasses gives the classes of the shapes by name. The medians resemble those published for each company's
// cluster (Chen et al., VLDB'12 for Facebook and Cloudera): rounded, with a similar form, not the same figures.
func shapeClasses() map[string][]mix {
	return map[string][]mix{
		"yahoo":    {{0.90, 25, 12, 0.6}, {0.09, 900, 60, 0.8}, {0.01, 3500, 900, 0.7}},
		"facebook": {{0.98, 20, 8, 0.7}, {0.017, 700, 150, 0.9}, {0.003, 4000, 600, 0.9}},
		"cloudera": {{0.95, 40, 15, 0.8}, {0.04, 900, 120, 0.8}, {0.01, 2500, 400, 0.8}},
		"google":   {{0.91, 180, 20, 0.9}, {0.08, 3000, 30, 0.9}, {0.01, 15000, 80, 0.8}},
	}
}

// Shapes lists the names that Generate knows.
func Shapes() []string {
	names := []string{"sparrow"}
	for n := range shapeClasses() {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Generate makes a load. "sparrow" is the synthetic load of Sparrow (SOSP'13, section 6): jobs of 100 tasks, whose
// duration is equal within a job and exponential with mean 100 ms across jobs, with Poisson arrivals. The others have
// classes of jobs: a task of a job with mean m takes m times a normal number with mean 1 and standard deviation 0.1.
func Generate(s Shape) (Source, error) {
	if s.Jobs < 1 || s.Slots < 1 || !(s.Load > 0 && s.Load <= 10) {
		return nil, fault.New(fault.Invalid, codeShape,
			"a load needs jobs, slots and a load above 0; it has %d, %d and %g", s.Jobs, s.Slots, s.Load)
	}
	g := &generator{shape: s, rng: rand.New(rand.NewPCG(s.Seed, 0x67_65_6e))}
	if s.Name == "sparrow" {
		g.gap = 0.1 * 100 / (s.Load * float64(s.Slots))
		return g, nil
	}
	if g.mixes = shapeClasses()[s.Name]; g.mixes == nil {
		return nil, fault.New(fault.Invalid, codeShape, "no shape is named %q; there are %q", s.Name, Shapes())
	}
	work := 0.0 // mean work of a job
	for _, m := range g.mixes {
		work += m.share * m.mean * m.tasks * math.Exp(m.sigma*m.sigma)
	}
	g.gap = work / (s.Load * float64(s.Slots))
	return g, nil
}

type generator struct {
	shape Shape
	mixes []mix
	rng   *rand.Rand
	gap   float64 // mean time between arrivals
	at    float64
	made  int
	durs  []float64
}

// Next implements Source.
func (g *generator) Next() (Job, error) {
	if g.made == g.shape.Jobs {
		return Job{}, io.EOF
	}
	if g.made++; g.made > 1 {
		g.at += g.rng.ExpFloat64() * g.gap
	}
	g.durs = g.durs[:0]
	if g.mixes == nil {
		d := g.rng.ExpFloat64() * 0.1
		for range 100 {
			g.durs = append(g.durs, d)
		}
		return Job{Submit: g.at, Mean: d, Durations: g.durs}, nil
	}
	pick, m := g.rng.Float64(), g.mixes[len(g.mixes)-1]
	for _, c := range g.mixes {
		if pick < c.share {
			m = c
			break
		}
		pick -= c.share
	}
	mean := m.mean * math.Exp(m.sigma*g.rng.NormFloat64())
	n := int(min(max(1, math.Round(m.tasks*math.Exp(m.sigma*g.rng.NormFloat64()))), MaxTasks))
	sum := 0.0
	for range n {
		d := mean * max(0.1, 1+0.1*g.rng.NormFloat64())
		sum += d
		g.durs = append(g.durs, d)
	}
	return Job{Submit: g.at, Mean: sum / float64(n), Durations: g.durs}, nil
}

// WriteTR writes a trace in the .tr format.
func WriteTR(w io.Writer, src Source) error {
	out := bufio.NewWriter(w)
	var line []byte
	for {
		j, err := src.Next()
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		line = fmt.Appendf(line[:0], "%.6f %d %.6f", j.Submit, len(j.Durations), j.Mean)
		for _, d := range j.Durations {
			line = strconv.AppendFloat(append(line, ' '), d, 'f', 6, 64)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return fault.Wrap(err, fault.Unavailable, CodeTrace, "the trace cannot be written")
		}
	}
}
