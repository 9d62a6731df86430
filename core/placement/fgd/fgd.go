// Package fgd scores workers with GPUs for tasks that want CPU, memory and parts of a GPU or whole ones: fragmentation
// gradient descent (Weng et al., ATC'23), the policies it was compared with, and souk's own. A score ranks workers
// that fit and never decides feasibility. Fits has placement.Judge's rules, and that a part of a GPU is on one device
// and whole GPUs are whole devices.
package fgd

import "math"

// Whole is a GPU in thousandths.
const Whole = 1000

// MaxGPUs is how many a worker can have here.
const MaxGPUs = 8

// Demand is what a task asks for. Models is a bit set of GPU models; 0 accepts any, and workers without GPUs.
type Demand struct {
	CPU, Mem int32 // thousandths of a core, MiB
	GPUs     int32 // devices
	Milli    int32 // of each device: Whole, or less of exactly one device
	Models   uint32
}

// Total returns the GPU of all devices together in thousandths.
func (d Demand) Total() int32 { return d.GPUs * d.Milli }

// Shares reports whether the task wants a part of one GPU.
func (d Demand) Shares() bool { return d.GPUs == 1 && d.Milli < Whole }

// Worker is the room a worker has left.
type Worker struct {
	CPU, Mem       int32
	CPUCap, MemCap int32
	GPUs           int32
	Model          uint8 // bit in Demand.Models
	Left           [MaxGPUs]int32
	Kinds          [MaxGPUs + 1]int32 // running tasks by number of devices; 0 counts those that share one
}

// GPULeft returns the free GPU in thousandths.
func (w *Worker) GPULeft() int32 {
	var sum int32
	for _, l := range w.Left[:w.GPUs] {
		sum += l
	}
	return sum
}

func (w *Worker) fitsDemand(d *Demand) bool {
	return d.Models == 0 || d.Models>>w.Model&1 == 1 && w.GPUs > 0
}

// hasDevices reports whether the free GPUs suffice.
func (w *Worker) hasDevices(d *Demand) bool {
	n := d.GPUs
	for _, l := range w.Left[:w.GPUs] {
		if l >= d.Milli {
			if n--; n <= 0 {
				return true
			}
		}
	}
	return n <= 0
}

// Fits reports whether the task can be placed.
func (w *Worker) Fits(d *Demand) bool {
	return d.CPU <= w.CPU && d.Mem <= w.Mem && (d.GPUs == 0 || w.fitsDemand(d) && w.hasDevices(d))
}

// Take places a task that fits; device is where a part of a GPU goes, and is ignored for whole GPUs.
func (w *Worker) Take(d *Demand, device int) {
	w.CPU -= d.CPU
	w.Mem -= d.Mem
	switch {
	case d.GPUs == 0:
		return
	case d.Shares():
		w.Left[device] -= d.Milli
		w.Kinds[0]++
		return
	}
	w.Kinds[d.GPUs]++
	n := d.GPUs
	for i := range w.Left[:w.GPUs] {
		if w.Left[i] == Whole && n > 0 {
			w.Left[i] = 0
			n--
		}
	}
}

// Typical is a kind of task and its share of all tasks.
type Typical struct {
	Demand
	Share float64
}

// Waste is the expected GPU of a worker, in thousandths, that a task drawn from the typical ones cannot use: all free
// GPU if the task does not fit, else that on devices with too little free (the paper's section 3.2).
func Waste(w *Worker, typical []Typical) float64 {
	all := w.GPULeft()
	if all == 0 {
		return 0
	}
	waste := 0.0
	for i := range typical {
		t := &typical[i]
		if t.GPUs == 0 || t.CPU > w.CPU || !w.fitsDemand(&t.Demand) || !w.hasDevices(&t.Demand) {
			waste += t.Share * float64(all)
			continue
		}
		var small int32
		for _, l := range w.Left[:w.GPUs] {
			if l < t.Milli {
				small += l
			}
		}
		waste += t.Share * float64(small)
	}
	return waste
}

// Policy scores a worker on which the task fits; larger is better, and device is where a part of a GPU would go.
type Policy struct {
	Name  string
	Score func(w *Worker, d *Demand) (score float64, device int)
}

// tightestDevice returns the device with the least sufficient room.
func tightestDevice(w *Worker, d *Demand) int {
	best := -1
	for i, l := range w.Left[:w.GPUs] {
		if l >= d.Milli && (best < 0 || l < w.Left[best]) {
			best = i
		}
	}
	return best
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// eachPlacement calls f with the worker after the task is placed, once for each device that it could go to.
func eachPlacement(w *Worker, d *Demand, f func(after *Worker, device int)) {
	if !d.Shares() {
		after := *w
		after.Take(d, -1)
		f(&after, -1)
		return
	}
	for i, l := range w.Left[:w.GPUs] {
		if l >= d.Milli {
			after := *w
			after.Take(d, i)
			f(&after, i)
		}
	}
}

// FGD places where the waste grows least (the paper's algorithm 2). Scores are whole hundredths of a sigmoid, as in
// the paper's simulator: workers that differ by less are equal.
func FGD(typical []Typical) Policy {
	return Policy{Name: "FGD", Score: func(w *Worker, d *Demand) (float64, int) {
		score, device := -1.0, -1
		before := Waste(w, typical)
		eachPlacement(w, d, func(after *Worker, i int) {
			if s := math.Floor(100 * sigmoid((before-Waste(after, typical))/1000)); s > score {
				score, device = s, i
			}
		})
		return score, device
	}}
}
