package fgd

import "math"

// The largest worker, by which the peers' scores are scaled.
const (
	maxCPU = 128_000
	maxGPU = MaxGPUs * Whole
)

// BestFit leaves the least room, CPU and GPU counted alike.
func BestFit() Policy {
	return Policy{Name: "BestFit", Score: func(w *Worker, d *Demand) (float64, int) {
		left := float64(w.CPU-d.CPU)/maxCPU/2 + float64(w.GPULeft()-d.Total())/maxGPU/2
		return math.Floor(100 * (1 - left)), tightestDevice(w, d)
	}}
}

// DotProd is Tetris' alignment (SIGCOMM'14), as FGD's paper has it: the smaller the dot product of a worker's room and
// the demand, the better.
func DotProd() Policy {
	return Policy{Name: "DotProd", Score: func(w *Worker, d *Demand) (float64, int) {
		dot := float64(w.CPU)/maxCPU*float64(d.CPU)/maxCPU + float64(w.GPULeft())/maxGPU*float64(d.Total())/maxGPU
		return math.Floor(100 * (1 - dot/2)), tightestDevice(w, d)
	}}
}

// GPUPacking uses GPUs already shared first, then free ones of workers in use, then others.
func GPUPacking() Policy {
	return Policy{Name: "GpuPacking", Score: func(w *Worker, d *Demand) (float64, int) {
		if d.GPUs == 0 {
			return 0, -1
		}
		free := int32(0)
		for _, l := range w.Left[:w.GPUs] {
			if l == Whole {
				free++
			}
		}
		device := tightestDevice(w, d)
		switch {
		case free == w.GPUs:
			return float64(max(33-free, free)), device
		case !d.Shares():
			return float64(max(50-d.GPUs, 33)), device
		case w.Left[device] == Whole:
			return 49, device
		}
		return float64(100 - w.Left[device]*100/Whole/10), device
	}}
}

// GPUClustering puts tasks of one kind of GPU demand together.
func GPUClustering() Policy {
	return Policy{Name: "GpuClustering", Score: func(w *Worker, d *Demand) (float64, int) {
		if d.GPUs == 0 {
			return 0, -1
		}
		kind := d.GPUs
		if d.Shares() {
			kind = 0
		}
		kinds := 0
		for _, n := range w.Kinds {
			if n > 0 {
				kinds++
			}
		}
		base := float64(25 * (maxGPU - w.GPULeft()) / maxGPU)
		switch {
		case w.Kinds[kind] > 0 && kinds == 1:
			base += 75
		case w.Kinds[kind] > 0:
			base += 50
		case kinds == 0:
			base += 25
		}
		return base, tightestDevice(w, d)
	}}
}
