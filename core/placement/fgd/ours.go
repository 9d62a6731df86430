package fgd

import "math"

// Scarcity is how much of each GPU model the tasks that name models would take if they spread evenly over the models
// they name, as a share of the model's GPUs. Tasks that name none are left out, since they can go elsewhere.
func Scarcity(workers []Worker, typical []Typical) [32]float64 {
	var has [32]float64
	var all, asked float64
	for i := range workers {
		has[workers[i].Model] += float64(workers[i].GPUs)
		all += float64(workers[i].GPUs)
	}
	for i := range typical {
		asked += typical[i].Share * float64(typical[i].Total())
	}
	var out [32]float64
	for i := range typical {
		t := &typical[i]
		room := 0.0
		for m := range has {
			if t.Models>>m&1 == 1 {
				room += has[m]
			}
		}
		for m := range has {
			if t.Models>>m&1 == 1 && room > 0 && asked > 0 {
				out[m] += t.Share * float64(t.Total()) / asked * all / room
			}
		}
	}
	return out
}

// Constants of Priced, one set for all lists.
const (
	scarcityPrice = 3.0 // hundredths of a sigmoid for one GPU of a model whose demand equals its supply
	step          = 2.0 // scores that differ by less are equal
)

// Priced is souk's own policy: waste as in FGD, plus a price on GPUs of the models that tasks name, so that other
// tasks avoid them. Scores are twice as coarse as FGD's: among nearly equal workers the first is taken, and taking the
// same ones again leaves the others whole.
func Priced(workers []Worker, typical []Typical) Policy {
	price := Scarcity(workers, typical)
	return Policy{Name: "Priced", Score: func(w *Worker, d *Demand) (float64, int) {
		best, device := math.Inf(-1), -1
		before := Waste(w, typical)
		toll := scarcityPrice * price[w.Model] * float64(d.Total()) / Whole
		eachPlacement(w, d, func(after *Worker, i int) {
			s := 100*sigmoid((before-Waste(after, typical))/1000) - toll
			if s = math.Floor(s / step); s > best {
				best, device = s, i
			}
		})
		return best, device
	}}
}
