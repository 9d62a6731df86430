package process

import (
	"time"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// HostUse returns the resource use of the whole host, from the kernel's counters.
func (r *Runtime) HostUse() *machine.HostUse {
	h, err := proc.ReadHost()
	if err != nil {
		return nil
	}
	return &machine.HostUse{Host: proc.BootID(), CPU: h.CPU.Microseconds(), At: time.Now().UnixMicro(), CPUs: h.CPUs,
		MemoryMiB: (h.Memory - h.Available) >> 20, TotalMiB: h.Memory >> 20}
}
