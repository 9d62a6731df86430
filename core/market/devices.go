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
// their devices, and there are none where the worker does not tell its devices apart. What is promised to a machine that
// sleeps stands beside them; it is nobody's room yet.
type amount struct {
	res      cluster.Resources
	gpus     []Share
	promised cluster.Resources
}

// kinds are the resources that a worker's GPU devices are by their kinds ("gpu.a100"), by the devices' numbers; "" where
// its capacity does not tell of the kind.
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

// amountOf returns what a machine takes that wants so much and has these devices. Of each kind of GPU that is what its
// devices are of: one that named no kind takes some, too.
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

// leastOf gives the smaller room of two amounts in each dimension and on each device; where devices are told apart, GPUs
// are what these have of them. No room may be below zero.
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

// isZero reports whether there is no room in it.
func (a amount) isZero() bool { return a.res.IsZero() && len(a.gpus) == 0 }

// combineShares gives a + sign*b. Neither is changed; what comes to nothing is left out.
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

// pickDevices chooses devices for want thousandths of a GPU of a kind ("" is any), where the judge has said that they
// are there: a part of one comes from the device where it leaves least over, so that whole devices stay whole (best
// fit); more than one come whole. What is kept is taken first: a machine that runs stays on the devices it was given.
// nil: they cannot be had that way.
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

// coversShares says whether the list has at least what every one of parts has.
func coversShares(list, parts []Share) bool {
	return !slices.ContainsFunc(parts, func(s Share) bool { return milliOf(list, s.Device) < s.Milli })
}
