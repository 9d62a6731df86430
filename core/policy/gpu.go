package policy

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/fgd"
)

// typicalText is one kind of request in the workload by which fragmentation is measured, as a policy file has it.
type typicalText struct {
	Share float64 `toml:"share"`
	CPU   int64   `toml:"cpu"`
	Mem   int64   `toml:"memory"`
	GPU   int64   `toml:"gpu"`
}

// MaxTypical bounds the kinds of requests of one file.
const MaxTypical = 64

// typicalDefault is the mix of the published list that FGD was evaluated with (openb, "default": 8,152 tasks), summed
// up in nine kinds with their mean CPU, for files without their own.
func typicalDefault() []typicalText {
	return []typicalText{
		{0.4798, 11_078, 0, 1000}, {0.1585, 7_903, 0, 425}, {0.1335, 17_645, 0, 0}, {0.1322, 3_181, 0, 810},
		{0.0491, 8_659, 0, 621},
		{0.0378, 4_679, 0, 197}, {0.0054, 80_273, 0, 8000}, {0.0020, 16_925, 0, 2000}, {0.0018, 37_760, 0, 4000},
	}
}

func (l *loader) loadTypical(list []typicalText) []typicalText {
	if len(list) == 0 {
		return typicalDefault()
	}
	if len(list) > MaxTypical {
		l.noteProblem("typical", "there are %d typical requests; at most %d", len(list), MaxTypical)
		return nil
	}
	for i, t := range list {
		switch {
		case !(t.Share > 0 && t.Share <= 1e9):
			l.noteProblem(indexedPath("typical", i)+".share", "the share is %v; use a number above 0", t.Share)
		case t.CPU < 0 || t.CPU > 1e9 || t.Mem < 0 || t.Mem > 1e9:
			l.noteProblem(indexedPath("typical", i),
				"cpu (thousandths of a core) and memory (MiB) are from 0 to 1000000000")
		case t.GPU < 0 || t.GPU > 1000*fgd.MaxGPUs || (t.GPU > 1000 && t.GPU%1000 != 0):
			l.noteProblem(indexedPath("typical", i)+".gpu",
				"gpu is %d thousandths; use less than one, or up to %d whole ones",
				t.GPU, fgd.MaxGPUs)
		}
	}
	return list
}

// fragmentationScore is the built-in gpu-fragmentation: 1 if the GPU left after placing the request is of use to the
// typical requests, 0 if none of it is (fragmentation gradient descent, Weng et al., ATC'23, section 4.2).
func fragmentationScore(list []typicalText) *placement.Builtin {
	typical, sum := make([]fgd.Typical, 0, len(list)), 0.0
	for _, t := range list {
		sum += t.Share
	}
	for _, t := range list {
		typical = append(typical, fgd.Typical{Demand: demandOf(t.CPU, t.Mem, t.GPU), Share: t.Share / sum})
	}
	of := fgd.FGD(typical)
	return &placement.Builtin{Name: gpuFragmentation, About: aboutFragmentation,
		Of: func(r *placement.Request, w *cluster.Record) float64 {
			worker, d := freeOn(r, w), demandOf(r.Resources.CPU, r.Resources.Memory, r.Resources.GPU)
			if !worker.Fits(&d) {
				return 0 // freeOn only guesses at counted GPUs, and the judge knows better
			}
			score, _ := of.Score(&worker, &d)
			return min(1, max(0, score/100))
		}}
}

func demandOf(cpu, mem, gpu int64) fgd.Demand {
	d := fgd.Demand{CPU: clampInt32(cpu), Mem: clampInt32(mem)}
	switch {
	case gpu <= 0:
	case gpu <= fgd.Whole:
		d.GPUs, d.Milli = 1, int32(gpu)
	default:
		d.GPUs, d.Milli = clampInt32(gpu/fgd.Whole), fgd.Whole
	}
	return d
}

func clampInt32(n int64) int32 { return int32(min(max(n, 0), 1<<30)) }

// freeOn returns what is free on a worker in FGD's terms: of the devices that the request can use, the eight with the
// most free. A worker that only counts its GPUs is assumed to have whole ones free, and a part of one.
func freeOn(r *placement.Request, w *cluster.Record) fgd.Worker {
	free := w.Free()
	out := fgd.Worker{CPU: clampInt32(free.CPU), Mem: clampInt32(free.Memory), CPUCap: clampInt32(w.Capacity.CPU),
		MemCap: clampInt32(w.Capacity.Memory)}
	var left []int32
	for _, g := range w.GPUs {
		if r.GPUKind == "" || g.Kind == r.GPUKind {
			left = append(left, clampInt32(min(g.Free, fgd.Whole)))
		}
	}
	if len(w.GPUs) == 0 {
		for n := free.GPU; n > 0 && len(left) < fgd.MaxGPUs; n -= fgd.Whole {
			left = append(left, clampInt32(min(n, fgd.Whole)))
		}
	}
	if len(left) > fgd.MaxGPUs {
		slices.SortFunc(left, func(a, b int32) int { return int(b - a) })
	}
	out.GPUs = int32(copy(out.Left[:], left))
	return out
}
