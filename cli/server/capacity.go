package server

import (
	goruntime "runtime"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// portsOffered is how many listening ports a worker's machines may ask for.
const portsOffered = 10_000

// capacityOf returns what this host has to offer, or what the flags say it has.
func capacityOf(dir string, o *devFlags) (cluster.Resources, error) {
	r := cluster.Resources{CPU: int64(goruntime.NumCPU()) * 1000, Ports: portsOffered}
	if o.cpus != 0 {
		r.CPU = int64(o.cpus) * 1000
	}
	r.Memory = int64(o.memory)
	if r.Memory == 0 {
		total, err := cli.MemInfo("MemTotal")
		if err != nil {
			return r, fault.Wrap(err, fault.Unavailable, "memory",
				"how much memory this host has cannot be read; give --memory")
		}
		r.Memory = total
	}
	disk, err := cli.FreeDisk(dir)
	if err != nil {
		return r, fault.Wrap(err, fault.Unavailable, "disk", "how much room %s has cannot be read", dir)
	}
	r.Disk = disk
	if r.CPU <= 0 || r.Memory <= 0 || !r.Valid() {
		return r, cli.Usagef("--cpus and --memory are sensible numbers above 0")
	}
	return r, nil
}
