// Package openb fills a cluster of GPU workers with tasks until more arrive than fit, as FGD's evaluation does
// (ATC'23, section 6): Alibaba's workers and tasks, tasks shuffled and drawn again up to 130 % of all GPUs, no
// departures.
package openb

import (
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/core/placement/fgd"
	"github.com/soukhq/souk/fault"
)

// codeOpenb says that the trace of openb cannot be read.
const codeOpenb fault.Code = "openb"

// Load is how much GPU arrives in a run, as a share of the cluster's.
const Load = 1.3

// typicalShare is how many of the tasks the typical kinds must cover.
const typicalShare = 0.95

// Models numbers the GPU models of a cluster.
type Models map[string]uint8

// ReadWorkers reads sn,cpu_milli,memory_mib,gpu,model.
func ReadWorkers(in io.Reader) ([]fgd.Worker, Models, error) {
	models := Models{}
	var out []fgd.Worker
	err := eachRow(in, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(f []string, n []int32) error {
		if n[3] > fgd.MaxGPUs {
			return fault.New(fault.Invalid, codeOpenb,
				"a worker has %d GPUs at most, and this one %d", fgd.MaxGPUs, n[3])
		}
		w := fgd.Worker{CPU: n[1], CPUCap: n[1], Mem: n[2], MemCap: n[2], GPUs: n[3]}
		for i := range w.GPUs {
			w.Left[i] = fgd.Whole
		}
		if _, ok := models[f[4]]; !ok {
			if len(models) == 32 {
				return fault.New(fault.Invalid, codeOpenb, "there are more than 32 models of GPU")
			}
			models[f[4]] = uint8(len(models))
		}
		w.Model = models[f[4]]
		out = append(out, w)
		return nil
	})
	return out, models, err
}

// ReadTasks reads name,cpu_milli,memory_mib,num_gpu,gpu_milli and, optionally, gpu_spec: models separated by |.
func ReadTasks(in io.Reader, models Models) ([]fgd.Demand, error) {
	var out []fgd.Demand
	err := eachRow(in, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
		func(f []string, n []int32) error {
			d := fgd.Demand{CPU: n[1], Mem: n[2], GPUs: n[3], Milli: n[4]}
			if d.GPUs > fgd.MaxGPUs || d.Milli > fgd.Whole || d.GPUs > 1 && d.Milli != fgd.Whole ||
				(d.GPUs == 0) != (d.Milli == 0) {
				return fault.New(fault.Invalid, codeOpenb, "%d GPUs of %d thousandths cannot be asked for", d.GPUs,
					d.Milli)
			}
			if len(f) > 5 {
				for m := range strings.SplitSeq(f[5], "|") {
					if k, ok := models[m]; ok && m != "" {
						d.Models |= 1 << k
					}
				}
			}
			out = append(out, d)
			return nil
		})
	return out, err
}

// eachRow calls f for each row with its fields, and the numeric ones as numbers.
func eachRow(in io.Reader, head []string, f func(fields []string, numbers []int32) error) error {
	c := csv.NewReader(in)
	c.ReuseRecord = true
	first, err := c.Read()
	if err != nil || len(first) < len(head) || !slices.Equal(first[:len(head)], head) {
		return fault.New(fault.Invalid, codeOpenb, "the list must start with a line of the columns %s",
			strings.Join(head, ","))
	}
	for line := 2; ; line++ {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		numbers := make([]int32, len(rec))
		for i := 1; err == nil && i < len(head); i++ {
			if head[i] == "model" {
				continue
			}
			var n int64
			if n, err = strconv.ParseInt(rec[i], 10, 32); err == nil && n < 0 {
				err = fault.New(fault.Invalid, codeOpenb, "%d is below zero", n)
			}
			numbers[i] = int32(n)
		}
		if err == nil {
			err = f(rec, numbers)
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, codeOpenb, "Line %d of the list", line)
		}
	}
}

// TypicalOf returns the most common kinds of tasks that together are 95 % of all, as in FGD's evaluation.
func TypicalOf(tasks []fgd.Demand) []fgd.Typical {
	count := map[fgd.Demand]int{}
	for _, d := range tasks {
		d.Mem = 0
		count[d]++
	}
	var kinds []fgd.Demand
	for d := range count {
		kinds = append(kinds, d)
	}
	slices.SortFunc(kinds, func(a, b fgd.Demand) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Milli, a.Milli),
			cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Models, a.Models))
	})
	var out []fgd.Typical
	sum := 0
	for _, d := range kinds {
		if float64(sum) >= typicalShare*float64(len(tasks)) {
			break
		}
		sum += count[d]
		out = append(out, fgd.Typical{Demand: d, Share: float64(count[d])})
	}
	for i := range out {
		out[i].Share /= float64(sum)
	}
	return out
}

// Arrivals shuffles the tasks and draws more of them until Load is reached.
func Arrivals(workers []fgd.Worker, tasks []fgd.Demand, rng *rand.Rand) []fgd.Demand {
	out := slices.Clone(tasks)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	var all, asked int64
	for i := range workers {
		all += int64(workers[i].GPUs) * fgd.Whole
	}
	for _, d := range tasks {
		asked += int64(d.Total())
	}
	for len(tasks) > 0 && len(out) < 100*len(tasks) {
		d := tasks[rng.IntN(len(tasks))]
		if float64(asked+int64(d.Milli)) > Load*float64(all) {
			break
		}
		asked += int64(d.Total())
		out = append(out, d)
	}
	return out
}

// Shuffled returns the workers in random order. Many workers score alike, and Run takes the first. In the list's
// order, which groups workers by model, packing policies score up to a point lower than published; in random order
// they match the published figures, so the published runs probably used another order.
func Shuffled(workers []fgd.Worker, rng *rand.Rand) []fgd.Worker {
	out := slices.Clone(workers)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Report has figures for whole percents of GPU arrived, 0 to 130: the mean over all tasks whose arrival rounds to that
// percent.
type Report struct {
	Allocated [131]float64 // percent of all GPU
	Wasted    [131]float64 // percent of all GPU that is free but unusable for typical tasks
	Placed    int
	Refused   int
}

// cached is a score that is valid for one version of the worker.
type cached struct {
	score   float64
	version int32
	device  int8
	fits    bool
}

// Run places arrivals one by one by the policy; among equal scores the first worker is taken. Random is a policy
// without a Score. Waste is computed with the typical tasks.
func Run(workers []fgd.Worker, arrivals []fgd.Demand, p fgd.Policy, typical []fgd.Typical, rng *rand.Rand) Report {
	workers = slices.Clone(workers)
	version := make([]int32, len(workers))
	waste := make([]float64, len(workers))
	var rep Report
	var all, arrived, used, wasted float64
	for i := range workers {
		all += float64(workers[i].GPUs) * fgd.Whole
		waste[i] = fgd.Waste(&workers[i], typical)
		wasted += waste[i]
	}
	scores := map[fgd.Demand][]cached{}
	var seen [131]int
	for i := range arrivals {
		d := &arrivals[i]
		arrived += float64(d.Total())
		w, device := -1, -1
		if p.Score == nil {
			w, device = drawWorker(workers, d, rng)
		} else {
			if scores[*d] == nil {
				scores[*d] = make([]cached, len(workers))
			}
			w, device = bestWorker(workers, version, d, p, scores[*d])
		}
		if w < 0 {
			rep.Refused++
		} else {
			rep.Placed++
			workers[w].Take(d, device)
			version[w]++
			used += float64(d.Total())
			wasted -= waste[w]
			waste[w] = fgd.Waste(&workers[w], typical)
			wasted += waste[w]
		}
		if k := int(math.RoundToEven(100 * arrived / all)); k < len(seen) {
			seen[k]++
			rep.Allocated[k] += 100 * used / all
			rep.Wasted[k] += 100 * wasted / all
		}
	}
	for k, n := range seen {
		if n > 0 {
			rep.Allocated[k] /= float64(n)
			rep.Wasted[k] /= float64(n)
		}
	}
	return rep
}

// bestWorker returns the worker with the highest score. It scores a worker again only after a change.
func bestWorker(workers []fgd.Worker, version []int32, d *fgd.Demand, p fgd.Policy, scores []cached) (w, device int) {
	w, top := -1, math.Inf(-1)
	for i := range scores {
		s := &scores[i]
		if s.version != version[i]+1 {
			s.version, s.fits = version[i]+1, workers[i].Fits(d)
			if s.fits {
				score, dev := p.Score(&workers[i], d)
				s.score, s.device = score, int8(dev)
			}
		}
		if s.fits && s.score > top {
			w, device, top = i, int(s.device), s.score
		}
	}
	return w, device
}

// drawWorker returns a random worker that fits, and one of its devices.
func drawWorker(workers []fgd.Worker, d *fgd.Demand, rng *rand.Rand) (w, device int) {
	w, device = -1, -1
	n := 0
	for i := range workers {
		if workers[i].Fits(d) {
			if n++; rng.IntN(n) == 0 {
				w = i
			}
		}
	}
	if w < 0 || !d.Shares() {
		return w, device
	}
	n = 0
	for i, l := range workers[w].Left[:workers[w].GPUs] {
		if l >= d.Milli {
			if n++; rng.IntN(n) == 0 {
				device = i
			}
		}
	}
	return w, device
}
