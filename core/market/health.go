package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// SetDevices tells which GPU devices the worker has now, and how they are. Each keeps its number, so the list begins
// with those that there were; what it says of how much is free does not count. One that something stands against is
// granted to nobody, and who has it keeps it.
func (s *Seller) SetDevices(now time.Time, list []cluster.GPU) {
	s.expire(now)
	had := s.rec.GPUs
	s.hold(s.sick, -1)
	s.sick = nil
	next := make([]cluster.GPU, len(list))
	for i, d := range list {
		next[i] = d
		if next[i].Free = 1000; i < len(had) {
			next[i].Kind, next[i].Free = had[i].Kind, s.rec.GPUs[i].Free
		}
	}
	if len(had) < len(next) {
		s.rec.Capacity = s.rec.Capacity.Add(machine.DeviceResources(next[len(had):]))
	}
	s.rec.GPUs = next
	s.kinds = kindsOf(&s.rec)
	s.setApart()
	s.touch()
}

// setApart has what is free of devices that something stands against count as used, so that whoever reads the record, a
// judge, an index, a score, finds no room there.
func (s *Seller) setApart() {
	s.hold(s.sick, -1)
	s.sick = nil
	for i, d := range s.rec.GPUs {
		if d.Health != "" && d.Free > 0 {
			s.sick = append(s.sick, Share{i, d.Free})
		}
	}
	s.hold(s.sick, 1)
}

// hold enters shares that no machine has (sign 1), or takes them out (-1).
func (s *Seller) hold(shares []Share, sign int64) {
	if len(shares) == 0 {
		return
	}
	a := s.apart(shares)
	if sign > 0 {
		s.rec.Used = s.rec.Used.Add(a.res)
	} else {
		s.rec.Used = s.rec.Used.Sub(a.res)
	}
	s.rec.GPUs = freed(s.rec.GPUs, shares, -sign)
}

// apart is what shares that no machine has are of the ledger.
func (s *Seller) apart(shares []Share) amount {
	var milli int64
	for _, sh := range shares {
		milli += sh.Milli
	}
	return s.kinds.amount(cluster.Resources{GPU: milli}, shares)
}

// frees is what a machine that goes down gives to another: not a device that something stands against.
func (s *Seller) frees(g *grant) amount {
	a := g.occupies().sub(g.asleep())
	var ill []Share
	for _, sh := range a.gpus {
		if s.rec.GPUs[sh.Device].Health != "" {
			ill = append(ill, sh)
		}
	}
	if len(ill) == 0 {
		return a
	}
	return a.sub(s.apart(ill))
}

// DeviceIDs returns by what their host knows these devices; none where they are only counted.
func (s *Seller) DeviceIDs(numbers []int) (out []string) {
	for _, n := range numbers {
		if n >= 0 && n < len(s.rec.GPUs) && s.rec.GPUs[n].ID != "" {
			out = append(out, s.rec.GPUs[n].ID)
		}
	}
	return out
}
