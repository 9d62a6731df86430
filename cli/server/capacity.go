package server

import (
	goruntime "runtime"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// portsOffered is how many listening ports a worker's machines may ask for.
const portsOffered = 10_000

// warnMemory warns if more memory is offered than the host has: its kernel would kill machines that use what they were
// promised. Both are in MiB.
func warnMemory(c *cli.Env, offered cli.Size) {
	if has, err := cli.MemInfo("MemTotal"); err == nil && int64(offered) > has {
		c.Note("--memory offers %d MiB, and this host has %d: its kernel will end machines that use what they are "+
			"promised", int64(offered), has)
	}
}

// capacityOf returns this host's resources, or those given by flags.
func capacityOf(dir string, o *devFlags) (cluster.Resources, error) {
	r := cluster.Resources{CPU: int64(goruntime.NumCPU()) * 1000, Ports: portsOffered}
	if o.cpus != 0 {
		r.CPU = int64(o.cpus) * 1000
	}
	r.Memory = int64(o.memory)
	if r.Memory == 0 {
		total, err := cli.MemInfo("MemTotal")
		if err != nil {
			return r, fault.Wrap(err, fault.Unavailable, codeMemory,
				"how much memory this host has cannot be read; give --memory")
		}
		r.Memory = total
	}
	disk, err := cli.FreeDisk(dir)
	if err != nil {
		return r, fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "how much room %s has cannot be read", dir)
	}
	r.Disk = disk
	if r.CPU <= 0 || r.Memory <= 0 || !r.Valid() {
		return r, cli.Usagef("--cpus and --memory are sensible numbers above 0")
	}
	return r, nil
}
