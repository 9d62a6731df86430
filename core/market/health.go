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
	s.expireHolds(now)
	had := s.rec.GPUs
	s.holdShares(s.sick, -1)
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
	s.bumpVersion()
}

// setApart has what is free of devices that something stands against count as used, so that whoever reads the record, a
// judge, an index, a score, finds no room there.
func (s *Seller) setApart() {
	s.holdShares(s.sick, -1)
	s.sick = nil
	for i, d := range s.rec.GPUs {
		if d.Health != "" && d.Free > 0 {
			s.sick = append(s.sick, Share{i, d.Free})
		}
	}
	s.holdShares(s.sick, 1)
}

// holdShares enters shares that no machine has (sign 1), or takes them out (-1).
func (s *Seller) holdShares(shares []Share, sign int64) {
	if len(shares) == 0 {
		return
	}
	a := s.sharesAmount(shares)
	if sign > 0 {
		s.rec.Used = s.rec.Used.Add(a.res)
	} else {
		s.rec.Used = s.rec.Used.Sub(a.res)
	}
	s.rec.GPUs = devicesFreed(s.rec.GPUs, shares, -sign)
}

// sharesAmount is what shares that no machine has are of the ledger.
func (s *Seller) sharesAmount(shares []Share) amount {
	var milli int64
	for _, sh := range shares {
		milli += sh.Milli
	}
	return s.kinds.amountOf(cluster.Resources{GPU: milli}, shares)
}

// freedByStop is what a machine that goes down gives to another: not a device that something stands against.
func (s *Seller) freedByStop(g *grant) amount {
	a := g.occupiedAmount().sub(g.asleepAmount())
	var ill []Share
	for _, sh := range a.gpus {
		if s.rec.GPUs[sh.Device].Health != "" {
			ill = append(ill, sh)
		}
	}
	if len(ill) == 0 {
		return a
	}
	return a.sub(s.sharesAmount(ill))
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
