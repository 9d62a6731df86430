package main

import (
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/worker"
)

// offerFlags are the flags that say what a worker is like, beside what it has.
type offerFlags struct {
	attrs    []string
	require  []string
	reserved []string
	headroom string
	gpus     []string
}

func (o *offerFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&o.attrs, "attr", nil, "NAME=VALUE, an attribute that requests may require; N:NAME=VALUE for worker N alone; repeatable")
	f.StringArrayVar(&o.require, "require", nil, "whom the workers take, over a request's labels: 'team == red', 'band in batch,free'; repeatable")
	f.StringArrayVar(&o.reserved, "reserve", nil, "NAME: only machines that tolerate NAME come here; repeatable")
	f.StringVar(&o.headroom, "headroom", "", "what each worker keeps free for large machines: cpu=2,memory=4GiB")
	f.StringArrayVar(&o.gpus, "gpu", nil, "KIND or KIND:COUNT, GPU devices of each worker; repeatable")
}

// maxGPUs bounds the devices of one worker.
const maxGPUs = 64

// of gives the offer of worker number n, and adds its devices to its capacity.
func (o *offerFlags) of(n int, capacity *cluster.Resources) (offer worker.Offer, err error) {
	offer.Attributes = cluster.Attributes{"arch": cluster.Text(goruntime.GOARCH), "os": cluster.Text(goruntime.GOOS)}
	for _, a := range o.attrs {
		name, value, ok := strings.Cut(a, "=")
		if number, rest, one := strings.Cut(name, ":"); one {
			i, err := strconv.Atoi(number)
			if err != nil {
				return offer, usagef("--attr is written NAME=VALUE or N:NAME=VALUE, not %q", a)
			}
			if name = rest; i != n {
				continue
			}
		}
		if !ok || !cluster.ValidAttribute(name) {
			return offer, usagef("--attr is written NAME=VALUE, with a name of letters, digits and . _ - /, not %q", a)
		}
		offer.Attributes[name] = cluster.ParseValue(value)
	}
	if why := offer.Attributes.Valid(); why != "" {
		return offer, usagef("--attr: %s", why)
	}
	if offer.Require, err = requirements("--require", o.require); err != nil {
		return offer, err
	}
	for _, name := range o.reserved {
		if !cluster.ValidAttribute(name) {
			return offer, usagef("--reserve is a name of letters, digits and . _ - /, not %q", name)
		}
		offer.Reserved = append(offer.Reserved, name)
	}
	if offer.Headroom, err = amounts("--headroom", o.headroom); err != nil {
		return offer, err
	}
	offer.GPUs, err = o.devices(capacity)
	return offer, err
}

func (o *offerFlags) devices(capacity *cluster.Resources) ([]cluster.GPU, error) {
	var out []cluster.GPU
	for _, g := range o.gpus {
		kind, count, many := strings.Cut(g, ":")
		n := 1
		if many {
			var err error
			if n, err = strconv.Atoi(count); err != nil {
				n = 0
			}
		}
		if kind == "" || n < 1 || len(out)+n > maxGPUs {
			return nil, usagef("--gpu is written KIND or KIND:COUNT, with at most %d devices in all, not %q", maxGPUs, g)
		}
		out = append(out, slices.Repeat([]cluster.GPU{{Kind: kind, Free: 1000}}, n)...)
		*capacity = capacity.Add(cluster.Resources{GPU: 1000 * int64(n), Named: map[string]int64{"gpu." + kind: 1000 * int64(n)}})
	}
	return out, nil
}

// requirements reads conditions as users write them.
func requirements(flag string, list []string) ([]cluster.Requirement, error) {
	var out []cluster.Requirement
	for _, s := range list {
		q, err := cluster.ParseRequirement(s)
		if err != nil {
			return nil, usagef("%s: %v", flag, err)
		}
		out = append(out, q)
	}
	return out, nil
}

// amounts reads "cpu=2,memory=4GiB,gpu=1,ports=3,licence=2": whole or part CPUs and GPUs, MiB where no unit is said.
func amounts(flag, text string) (cluster.Resources, error) {
	var r cluster.Resources
	if text == "" {
		return r, nil
	}
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		var add cluster.Resources
		scale := map[string]float64{"cpu": 1000, "gpu": 1000}[name]
		if name == "memory" || name == "disk" {
			value, scale = mebi(value)
		}
		if scale == 0 {
			scale = 1
		}
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || !(v >= 0) || v*scale > float64(cluster.MaxAmount) {
			return r, usagef("%s is written as cpu=2,memory=4GiB, not %q", flag, part)
		}
		switch n := int64(v * scale); name {
		case "cpu":
			add.CPU = n
		case "memory":
			add.Memory = n
		case "disk":
			add.Disk = n
		case "ports":
			add.Ports = n
		case "gpu":
			add.GPU = n
		default:
			add.Named = map[string]int64{name: n}
		}
		r = r.Add(add)
	}
	return r, nil
}

// mebi takes the unit off a size, and gives how many MiB it is.
func mebi(s string) (number string, unit float64) {
	for _, u := range []struct {
		name string
		mib  float64
	}{{"TiB", 1 << 20}, {"GiB", 1 << 10}, {"MiB", 1}, {"T", 1 << 20}, {"G", 1 << 10}, {"M", 1}} {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			return n, u.mib
		}
	}
	return s, 1
}
