package worker

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Devices updates the worker's devices and their health to those of its host, in any order: a known device keeps its
// number. It does nothing if the operator has listed the worker's devices.
func (w *Worker) Devices(found []cluster.GPU) {
	if !w.o.Offer.Found {
		return
	}
	l := w.loop
	l.postInput(func(now time.Time) lifecycle.Out {
		next := numberDevices(l.me.Devices, found)
		if slices.Equal(next, l.me.Devices) {
			return lifecycle.Out{}
		}
		out := l.sup.Devices(now, next)
		if !sameNumbers(l.me.Devices, next) {
			l.me.Devices = next
			if rec, err := l.me.recordNow(); err == nil { // it could be encoded before
				out.Records = append(out.Records, rec)
			}
		}
		l.me.Devices = next
		return out
	})
}

// missing is the health of a device that the host no longer has.
const missing = "it is not there any more"

// numberDevices orders devices by number. A known device keeps its number, even while it is missing, since a machine
// may hold it, and even if its name has changed.
func numberDevices(known, found []cluster.GPU) []cluster.GPU {
	out := make([]cluster.GPU, len(known), max(len(known), len(found)))
	entered := make([]bool, len(found))
	enter := func(same func(k, f *cluster.GPU) bool) {
		for n := range known {
			for i := range found {
				if out[n].ID == "" && !entered[i] && same(&known[n], &found[i]) {
					out[n], entered[i] = found[i], true
				}
			}
		}
	}
	enter(func(k, f *cluster.GPU) bool { return k.ID == f.ID })
	enter(func(k, f *cluster.GPU) bool { return k.Node != "" && k.Node == f.Node })
	for n := range known {
		if out[n].ID == "" {
			out[n] = known[n]
			out[n].Health = missing
		}
	}
	for i := range found {
		if !entered[i] {
			out = append(out, found[i])
		}
	}
	return out
}

func sameNumbers(a, b []cluster.GPU) bool {
	return slices.EqualFunc(a, b, func(p, q cluster.GPU) bool { return p.ID == q.ID })
}

// beginDevices numbers the devices found before the start. Missing ones are kept as long as a machine or a task may hold
// one of them or one with a higher number.
func (s *self) beginDevices(found []cluster.GPU, held func(number int) bool) {
	s.Devices = numberDevices(s.Devices, found)
	for n := len(s.Devices) - 1; n >= 0 && s.Devices[n].Health == missing && !held(n); n-- {
		s.Devices = s.Devices[:n]
	}
}

// forgetDevices drops the found devices once the operator lists devices: numbers then refer to those. It refuses if a
// machine or a task holds a found device, which it would go on to use uncounted.
func (s *self) forgetDevices(held func(number int) bool) error {
	for n, d := range s.Devices {
		if held(n) {
			return fault.New(fault.Conflict, codeDevicesHeld, "a machine or a task of worker %s holds the device %s, "+
				"which souk found on the host, and --gpu now names other devices: start the worker without --gpu, "+
				"stop the machine or wait for the task, then start it with --gpu", s.ID, d.ID)
		}
	}
	s.Devices = nil
	return nil
}

// heldDevices returns a function that reports the device numbers in the records of a journal's machines and tasks.
func heldDevices(records []fsm.Record) func(number int) bool {
	held := map[int]bool{}
	for _, r := range records {
		var row struct {
			Devices []market.Share `json:"devices"`
		}
		var err error
		switch r.Bucket {
		case lifecycle.MachineBucket:
			err = json.Unmarshal(r.Value, &row)
		case lifecycle.TaskDevicesBucket:
			err = json.Unmarshal(r.Value, &row.Devices)
		}
		if err == nil { // Restore reports unreadable records
			for _, d := range row.Devices {
				held[d.Device] = true
			}
		}
	}
	return func(n int) bool { return held[n] }
}

// withDevices adds devices to a worker's capacity.
func withDevices(capacity cluster.Resources, devices []cluster.GPU) cluster.Resources {
	return capacity.Add(machine.DeviceResources(devices))
}
