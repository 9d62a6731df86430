package jobs

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// settleImage refuses an image that no worker could run the tasks of.
func (s *Spec) settleImage() error {
	if s.Image == "" {
		return nil
	}
	if err := machine.CheckImage(s.Image); err != nil {
		return err
	}
	if machine.IsHostImage(s.Image) {
		s.Image = ""
		return nil
	}
	if !s.Files.IsZero() {
		return fault.New(fault.Invalid, fault.CodeJob, "tasks of an image find the files of the image, and what they "+
			"write is kept with the job: leave the image (%.80q) out, or the directory and the files", s.Image)
	}
	return nil
}

// conditions are what a worker must meet: what the job requires, and that it runs images if there is one.
func (s *Spec) conditions() []cluster.Requirement {
	if s.Image == "" {
		return s.Require
	}
	return append(slices.Clip(s.Require), cluster.Requirement{Attribute: cluster.ContainersAttribute,
		Op: cluster.Exists})
}
