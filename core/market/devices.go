package market

import (
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Share is a part of one GPU device: its number on the worker, and thousandths of it.
type Share struct {
	Device int   `json:"device"`
	Milli  int64 `json:"milli"`
}

// amount is an amount of the ledger: resources, and which devices their GPU part is on. Shares are in the order of
// their devices, and there are none if the worker only counts its GPUs. promised is what sleeping machines may claim
// when they wake; it is not occupied yet.
type amount struct {
	res      cluster.Resources
	gpus     []Share
	promised cluster.Resources
}

// kinds maps a device's number to the resource of its kind ("gpu.a100"), or to "" if the worker's capacity does not
// list the kind.
type kinds []string

func kindsOf(rec *cluster.Record) (k kinds) {
	for _, d := range rec.GPUs {
		name := machine.GPUKindPrefix + d.Kind
		if rec.Capacity.Named[name] == 0 {
			name = ""
		}
		k = append(k, name)
	}
	return k
}

// amountOf returns the amount that a machine with these resources and devices occupies. It counts the kinds of its
// actual devices, even if the machine asked for no kind.
func (k kinds) amountOf(want cluster.Resources, gpus []Share) amount {
	if len(k) == 0 {
		return amount{res: want, gpus: gpus}
	}
	named := make(map[string]int64, len(want.Named)+1)
	for name, n := range want.Named {
		if !strings.HasPrefix(name, machine.GPUKindPrefix) {
			named[name] = n
		}
	}
	for _, s := range gpus {
		if kind := k[s.Device]; kind != "" {
			named[kind] += s.Milli
		}
	}
	if want.Named = named; len(named) == 0 {
		want.Named = nil
	}
	return amount{res: want, gpus: gpus}
}

func (a amount) add(b amount) amount {
	return amount{a.res.Add(b.res), combineShares(a.gpus, b.gpus, 1), a.promised.Add(b.promised)}
}

func (a amount) sub(b amount) amount {
	return amount{a.res.Sub(b.res), combineShares(a.gpus, b.gpus, -1), a.promised.Sub(b.promised)}
}

// leastOf returns the smaller of two amounts in each dimension and on each device. If devices are listed, the GPU
// amount is the sum over them. No amount may be below zero.
func (k kinds) leastOf(a, b amount) amount {
	out := amount{res: a.res.Add(b.res).Sub(a.res.Max(b.res))}
	if len(k) == 0 {
		return out
	}
	out.res.GPU = 0
	for _, s := range a.gpus {
		if m := min(s.Milli, milliOf(b.gpus, s.Device)); m > 0 {
			out.gpus = append(out.gpus, Share{s.Device, m})
			out.res.GPU += m
		}
	}
	return k.amountOf(out.res, out.gpus)
}

// isZero reports whether the amount is empty.
func (a amount) isZero() bool { return a.res.IsZero() && len(a.gpus) == 0 }

// combineShares returns a + sign*b, without empty shares. It changes neither.
func combineShares(a, b []Share, sign int64) []Share {
	if len(b) == 0 {
		return a
	}
	out := slices.Clone(a)
	for _, s := range b {
		i, there := slices.BinarySearchFunc(out, s.Device, func(x Share, d int) int { return x.Device - d })
		if !there {
			out = slices.Insert(out, i, Share{Device: s.Device})
		}
		out[i].Milli += sign * s.Milli
	}
	return slices.DeleteFunc(out, func(s Share) bool { return s.Milli == 0 })
}

func milliOf(list []Share, device int) int64 {
	for _, s := range list {
		if s.Device == device {
			return s.Milli
		}
	}
	return 0
}

// pickDevices chooses devices for want thousandths of a GPU of a kind ("" is any), which the judge has found to be
// there. A part of a GPU comes from the device where it leaves the least (best fit), so that whole devices stay whole;
// several GPUs are whole devices. The devices in kept are taken first: a running machine stays on its devices. nil:
// there are no such devices.
func pickDevices(devices []cluster.GPU, want int64, kind string, kept []Share) []Share {
	if want <= 0 || len(devices) == 0 {
		return nil
	}
	each, n := want, int64(1)
	if want > 1000 {
		each, n = 1000, want/1000
		if want%1000 != 0 {
			return nil
		}
	}
	var fit []int
	for i, d := range devices {
		if (kind == "" || d.Kind == kind) && d.Free >= each {
			fit = append(fit, i)
		}
	}
	slices.SortStableFunc(fit, func(a, b int) int {
		ka, kb := milliOf(kept, a) > 0, milliOf(kept, b) > 0
		switch {
		case ka && !kb:
			return -1
		case kb && !ka:
			return 1
		}
		return int(devices[a].Free - devices[b].Free)
	})
	if int64(len(fit)) < n {
		return nil
	}
	out := make([]Share, 0, n)
	for _, i := range fit[:n] {
		out = append(out, Share{i, each})
	}
	slices.SortFunc(out, func(a, b Share) int { return a.Device - b.Device })
	return out
}

// coversShares reports whether list has at least each of parts.
func coversShares(list, parts []Share) bool {
	return !slices.ContainsFunc(parts, func(s Share) bool { return milliOf(list, s.Device) < s.Milli })
}
