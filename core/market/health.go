package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// SetDevices sets the worker's present GPU devices and their health. Each device keeps its number, so the list begins
// with the known devices; its Free is ignored. An unhealthy device is granted to no machine, and machines that have it
// keep it.
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

// setApart counts the free part of unhealthy devices as used, so that every reader of the record (a judge, an index, a
// score) finds no room there.
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

// holdShares marks shares that no machine has as used (sign 1), or as free again (-1).
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

// sharesAmount returns the ledger amount of shares that no machine has.
func (s *Seller) sharesAmount(shares []Share) amount {
	var milli int64
	for _, sh := range shares {
		milli += sh.Milli
	}
	return s.kinds.amountOf(cluster.Resources{GPU: milli}, shares)
}

// freedByStop returns what a machine frees for another when it goes down: all but unhealthy devices.
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

// DeviceIDs returns the host's IDs of these devices; none if the devices are only counted.
func (s *Seller) DeviceIDs(numbers []int) (out []string) {
	for _, n := range numbers {
		if n >= 0 && n < len(s.rec.GPUs) && s.rec.GPUs[n].ID != "" {
			out = append(out, s.rec.GPUs[n].ID)
		}
	}
	return out
}
