package fgd_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/fgd"
)

var worker = rapid.Custom(func(t *rapid.T) fgd.Worker {
	w := fgd.Worker{CPU: rapid.Int32Range(0, 32).Draw(t, "cpu") * 1000,
		Mem: rapid.Int32Range(0, 64).Draw(t, "mem") * 1024, GPUs: rapid.Int32Range(0, fgd.MaxGPUs).Draw(t, "gpus")}
	for i := range w.GPUs {
		w.Left[i] = rapid.Int32Range(0, 10).Draw(t, "left") * 100
	}
	return w
})

var demand = rapid.Custom(func(t *rapid.T) fgd.Demand {
	d := fgd.Demand{CPU: rapid.Int32Range(0, 32).Draw(t, "cpu") * 1000,
		Mem: rapid.Int32Range(0, 64).Draw(t, "mem") * 1024}
	switch d.GPUs = rapid.Int32Range(0, 4).Draw(t, "devices"); d.GPUs {
	case 0:
	case 1:
		d.Milli = rapid.Int32Range(1, 10).Draw(t, "part") * 100
	default:
		d.Milli = fgd.Whole
	}
	return d
})

// TestFGDFitImpliesTheJudgeFits holds that nothing is placed here that the judge would refuse, and that only the devices, which
// the judge does not know, are stricter.
func TestFGDFitImpliesTheJudgeFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, d := worker.Draw(t, "worker"), demand.Draw(t, "demand")
		rec := cluster.Record{State: cluster.Ready, Capacity: cluster.Resources{CPU: int64(w.CPU), Memory: int64(w.Mem),
			GPU: int64(w.GPULeft())}}
		req := placement.Request{Resources: cluster.Resources{CPU: int64(d.CPU), Memory: int64(d.Mem),
			GPU: int64(d.Total())}}
		judged := placement.Judge(req, rec).Fits
		if fits := w.Fits(&d); fits && !judged || d.GPUs == 0 && fits != judged {
			t.Fatalf("fits %v, judge %v", fits, judged)
		}
	})
}

// TestPoliciesPickADeviceWithRoom draws workers and demands: a device that a policy names has room, and taking it keeps every
// amount at or above zero.
func TestPoliciesPickADeviceWithRoom(t *testing.T) {
	typical := []fgd.Typical{{Demand: fgd.Demand{CPU: 4000, GPUs: 1, Milli: 500}, Share: 0.5},
		{Demand: fgd.Demand{CPU: 8000, GPUs: 2, Milli: fgd.Whole}, Share: 0.5}}
	rapid.Check(t, func(t *rapid.T) {
		w, d := worker.Draw(t, "worker"), demand.Draw(t, "demand")
		if !w.Fits(&d) {
			return
		}
		for _, p := range []fgd.Policy{fgd.FGD(typical), fgd.BestFit(), fgd.DotProd(), fgd.GPUPacking(),
			fgd.GPUClustering(), fgd.Priced([]fgd.Worker{w}, typical)} {
			_, device := p.Score(&w, &d)
			after := w
			if d.Shares() && (device < 0 || w.Left[device] < d.Milli) {
				t.Fatalf("%s puts %d on device %d of %v", p.Name, d.Milli, device, w.Left)
			}
			after.Take(&d, device)
			if after.CPU < 0 || after.Mem < 0 || after.GPULeft() != w.GPULeft()-d.Total() {
				t.Fatalf("%s leaves %+v of %+v for %+v", p.Name, after, w, d)
			}
			if waste := fgd.Waste(&after, typical); waste < 0 || waste > float64(after.GPULeft())+1e-6 {
				t.Fatalf("%v of %d is wasted", waste, after.GPULeft())
			}
		}
	})
}

func TestWasteMatchesHandComputedFragmentation(t *testing.T) {
	typical := []fgd.Typical{{Demand: fgd.Demand{CPU: 1000, GPUs: 1, Milli: 500}, Share: 0.75},
		{Demand: fgd.Demand{CPU: 1000, GPUs: 2, Milli: fgd.Whole}, Share: 0.25}}
	for name, c := range map[string]struct {
		w    fgd.Worker
		want float64
	}{
		"empty":      {fgd.Worker{CPU: 8000, GPUs: 2, Left: [8]int32{1000, 1000}}, 0},
		"one shared": {fgd.Worker{CPU: 8000, GPUs: 2, Left: [8]int32{400, 1000}}, 0.75*400 + 0.25*1400},
		"no CPU":     {fgd.Worker{CPU: 0, GPUs: 2, Left: [8]int32{1000, 1000}}, 2000},
		"full":       {fgd.Worker{CPU: 8000, GPUs: 2}, 0},
	} {
		if got := fgd.Waste(&c.w, typical); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
