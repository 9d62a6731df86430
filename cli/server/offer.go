package server

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/reaper/space"
	"github.com/soukhq/souk/worker"
)

// offerFlags are the flags about a worker's attributes and terms, besides its capacity.
type offerFlags struct {
	attrs    []string
	require  []string
	reserved []string
	headroom string
	promise  float64
	gpus     []string
	extras   []string
	cdi      []string
	cdiHooks bool
	backfill policyValue

	allowRoot bool
}

func (o *offerFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&o.attrs, "attr", nil,
		"NAME=VALUE, an attribute that requests may require; N:NAME=VALUE for worker N alone; repeatable")
	f.StringArrayVar(&o.require, "require", nil,
		"whom the workers take, over a request's labels: 'team == red', 'band in batch,free'; repeatable")
	f.StringArrayVar(&o.reserved, "reserve", nil, "NAME: only machines that tolerate NAME come here; repeatable")
	f.StringVar(&o.headroom, "headroom", "", "what each worker keeps free for large machines: cpu=2,memory=4GiB")
	f.Float64Var(&o.promise, "promise-limit", 0,
		"how many times its room each worker would use if all were awake that requests may wake, before it takes no "+
			"more of those; 0: no limit")
	f.Var(&o.backfill, "backfill", "which tasks may have room that is reserved, until it is used: easy: those that do "+
		"not delay what goes first; conservative: those that delay nothing before them; fcfs: none")
	f.BoolVar(&o.allowRoot, "allow-root", false,
		"let machines be root where they ask for it (souk run --user root); each has a user of its own otherwise")
	f.StringArrayVar(&o.extras, "extra", nil,
		"NAME=COUNT of anything else that each worker has, such as licences, for machines that ask for it; repeatable")
	f.StringArrayVar(&o.gpus, "gpu", nil,
		"KIND or KIND:COUNT, GPUs that each worker is to count in the place of those that are found on the host, "+
			"which are then given to nobody; none: to offer none; repeatable")
	f.StringArrayVar(&o.cdi, "cdi-dir", nil,
		"directory of CDI specifications, in the place of /etc/cdi and /var/run/cdi; repeatable")
	f.BoolVar(&o.cdiHooks, "cdi-hooks", false,
		"run the hooks of CDI specifications, as root, for containers that hold their devices")
}

// maxGPUs bounds the devices of one worker.
const maxGPUs = devices.Most

// noGPUs is the value of --gpu that offers none.
const noGPUs = "none"

// policyValue is the value of --backfill.
type policyValue backfill.Policy

func (p *policyValue) String() string { return backfill.Policy(*p).String() }

func (p *policyValue) Type() string { return "policy" }

func (p *policyValue) Set(name string) error {
	found, err := backfill.ParsePolicy(name)
	*p = policyValue(found)
	return err
}

// none reports whether found devices must not be granted.
func (o *offerFlags) none() bool { return slices.Equal(o.gpus, []string{noGPUs}) }

// found looks for the devices of this host.
func (o *offerFlags) found(ctx context.Context, log *slog.Logger) *devices.Set {
	set := devices.Options{Host: devices.This(o.cdi), Hooks: o.cdiHooks, Log: log}
	if os.Geteuid() == 0 {
		set.Claims = filepath.Join(space.Dir, "devices")
	}
	if o.none() {
		set.Withheld = "the worker offers none (--gpu none)"
	}
	return devices.Open(ctx, set)
}

// of returns the offer of worker number n, and adds its devices to its capacity.
func (o *offerFlags) of(n int, capacity *cluster.Resources) (offer worker.Offer, err error) {
	offer.Attributes = cluster.Attributes{"arch": cluster.Text(goruntime.GOARCH), "os": cluster.Text(goruntime.GOOS)}
	for _, a := range o.attrs {
		name, value, ok := strings.Cut(a, "=")
		if number, rest, one := strings.Cut(name, ":"); one {
			i, err := strconv.Atoi(number)
			if err != nil {
				return offer, cli.Usagef("--attr is written NAME=VALUE or N:NAME=VALUE, not %q", a)
			}
			if name = rest; i != n {
				continue
			}
		}
		if !ok || !cluster.ValidAttribute(name) {
			return offer, cli.Usagef("--attr is written NAME=VALUE, with a name of letters, digits and . _ - /, not %q",
				a)
		}
		offer.Attributes[name] = cluster.ParseValue(value)
	}
	if why := offer.Attributes.Valid(); why != "" {
		return offer, cli.Usagef("--attr: %s", why)
	}
	if offer.Require, err = cli.Requirements("--require", o.require); err != nil {
		return offer, err
	}
	for _, name := range o.reserved {
		if !cluster.ValidAttribute(name) {
			return offer, cli.Usagef("--reserve is a name of letters, digits and . _ - /, not %q", name)
		}
		offer.Reserved = append(offer.Reserved, name)
	}
	if offer.Headroom, err = cli.Amounts("--headroom", o.headroom); err != nil {
		return offer, err
	}
	if offer.PromiseLimit, err = o.promiseLimit(); err != nil {
		return offer, err
	}
	if err := o.addExtras(capacity); err != nil {
		return offer, err
	}
	offer.Found = len(o.gpus) == 0 || o.none()
	offer.GPUs, err = o.devices(capacity)
	return offer, err
}

// promiseLimit returns cluster.Record.PromiseLimit from the flags, in thousandths.
func (o *offerFlags) promiseLimit() (int64, error) {
	const most = cluster.MaxPromiseLimit / 1000
	milli := int64(math.Round(min(max(o.promise, -1), most+1) * 1000))
	if o.promise != 0 && milli < 1 || milli > cluster.MaxPromiseLimit || math.IsNaN(o.promise) {
		return 0, cli.Usagef("--promise-limit is 0.001 to %d times a worker's room, or 0 for no limit, not %v", most,
			o.promise)
	}
	return milli, nil
}

// addExtras adds the operator's own resources to a worker's capacity.
func (o *offerFlags) addExtras(capacity *cluster.Resources) error {
	for _, x := range o.extras {
		name, count, _ := strings.Cut(x, "=")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return cli.Usagef("--extra is written NAME=COUNT, with a whole number, not %q", x)
		}
		if err := machine.CheckExtra("--extra", name, n); err != nil {
			return cli.Usagef("%s", fault.As(err).Text)
		}
		*capacity = capacity.Add(cluster.Resources{Named: map[string]int64{name: n}})
	}
	return nil
}

func (o *offerFlags) devices(capacity *cluster.Resources) ([]cluster.GPU, error) {
	var out []cluster.GPU
	if o.none() {
		return nil, nil
	}
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
			return nil, cli.Usagef("--gpu is written KIND or KIND:COUNT, with at most %d devices in all, not %q",
				maxGPUs, g)
		}
		out = append(out, slices.Repeat([]cluster.GPU{{Kind: kind, Free: 1000}}, n)...)
	}
	*capacity = capacity.Add(machine.DeviceResources(out))
	return out, nil
}
