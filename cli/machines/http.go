package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/services"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// httpFlags give a machine a service for requests from outside.
type httpFlags struct {
	http     string
	autostop string
	after    time.Duration
	min      int
	max      int
	create   int
	warm     int
	soft     int
	hard     int
	set      *pflag.FlagSet
}

func (o *httpFlags) add(f *pflag.FlagSet) {
	o.set = f
	f.StringVar(&o.http, "http", "",
		"[NAME]:PORT: it answers HTTP at its port PORT, and requests for NAME, by default the app's name or in the "+
			"app default the machine's, are led to it; they start it when it is stopped")
	f.StringVar(&o.autostop, "autostop", "stop",
		"with --http, what becomes of it when nobody asks it: stop, suspend or off")
	f.DurationVar(&o.after, "autostop-after", time.Minute,
		"with --http, after how long without a request")
	f.IntVar(&o.min, "min-running", 0, "with --http, how many machines of the service stay up all the same")
	f.IntVar(&o.max, "max-running", 0, "with --http, how many are up at most (default: all)")
	f.IntVar(&o.create, "create-up-to", 0,
		"with --http, how many machines there may be when those that are there do not do, or cannot be started: more "+
			"are made like them, with files of their own (default: none is made)")
	f.IntVar(&o.warm, "warm", 0,
		"with --create-up-to, how many machines are kept made and asleep beside those that are up, to be woken by "+
			"requests to come: suspended where --autostop is suspend (default: none)")
	f.IntVar(&o.soft, "soft-limit", 0,
		"with --http, requests at once beyond which another machine is used, and started")
	f.IntVar(&o.hard, "hard-limit", 0, "with --http, requests at once beyond which they wait")
}

// apply adds the service to a config, replacing one at the same port.
func (o *httpFlags) apply(app string, l *machine.Launch) error {
	if !o.set.Changed("http") {
		for _, name := range []string{"autostop", "autostop-after", "min-running", "max-running", "create-up-to",
			"warm", "soft-limit", "hard-limit"} {
			if o.set.Changed(name) {
				return cli.Usagef("--%s goes with --http [NAME]:PORT", name)
			}
		}
		return nil
	}
	name, number, found := strings.Cut(o.http, ":")
	port, err := strconv.Atoi(number)
	if !found || err != nil && !errors.Is(err, strconv.ErrRange) {
		return cli.Usagef("--http is written [NAME]:PORT, such as :8080 or shop:8080, not %q", o.http)
	}
	if port < 1 || port > 65535 {
		return cli.Usagef("--http names port %s; a port is 1 to 65535", number)
	}
	if name == "" && app == "default" {
		name = l.Name
	}
	if o.set.Changed("max-running") && o.max < 1 {
		return cli.Usagef("--max-running is 1 or more, not %d; leave it out and all may be up", o.max)
	}
	if o.set.Changed("create-up-to") && o.create < 1 {
		return cli.Usagef("--create-up-to is 1 or more, not %d; leave it out and none is made", o.create)
	}
	if err := o.checkWarm(); err != nil {
		return err
	}
	stop := machine.Autostop(o.autostop)
	if !slices.Contains([]machine.Autostop{"stop", "suspend", "off"}, stop) {
		return cli.Usagef("--autostop is stop, suspend or off, not %q", o.autostop)
	}
	s := machine.Service{Protocol: "tcp", InternalPort: port, Autostop: &stop, Autostart: new(true),
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}},
			{Port: new(443), Handlers: []string{"tls", "http"}}}}
	if name != "" {
		s.Hosts = []string{strings.ToLower(name)}
	}
	if stop != "off" {
		s.AutostopAfter = &machine.Duration{Duration: o.after}
	}
	o.scale(&s)
	cfg := l.Config
	cfg.Services = slices.DeleteFunc(slices.Clone(cfg.Services), func(old machine.Service) bool {
		return old.InternalPort == port
	})
	cfg.Services = append(cfg.Services, s)
	if cfg.Env == nil {
		cfg.Env = map[string]string{}
	}
	if _, set := cfg.Env["PORT"]; !set {
		cfg.Env["PORT"] = fmt.Sprint(port)
	}
	return nil
}

// scale sets a service's numbers of machines.
func (o *httpFlags) scale(s *machine.Service) {
	for flag, to := range map[*int]**int{&o.min: &s.MinMachinesRunning, &o.max: &s.MaxMachinesRunning,
		&o.create: &s.CreateUpTo, &o.warm: &s.Warm} {
		if *flag > 0 {
			*to = flag
		}
	}
	if o.soft > 0 || o.hard > 0 {
		s.Concurrency = &machine.Concurrency{Type: "requests", SoftLimit: o.soft, HardLimit: o.hard}
	}
}

// checkWarm refuses spares that could not be made.
func (o *httpFlags) checkWarm() error {
	switch {
	case !o.set.Changed("warm"):
		return nil
	case o.warm < 1:
		return cli.Usagef("--warm is 1 or more, not %d; leave it out and no spare is kept", o.warm)
	case o.create <= o.warm:
		return cli.Usagef("--warm %d goes with --create-up-to %d or more, which counts all machines of the service",
			o.warm, o.warm+1)
	}
	return nil
}

// servicesOf returns the services that a machine is behind, as the answering souk routes to them; none on an error.
func servicesOf(ctx context.Context, cl *client.Client, m *machine.Machine) (list api.ServiceList) {
	if m.Config == nil || len(m.Config.Services) == 0 {
		return list
	}
	all, err := cl.Services(ctx, m.App)
	if err != nil { // the machine exists all the same
		return list
	}
	list.Doors = all.Doors
	for _, s := range all.Services {
		if slices.ContainsFunc(s.Machines, func(x api.ServiceMachine) bool { return x.ID == m.ID }) {
			list.Services = append(list.Services, s)
		}
	}
	return list
}

// curlOf returns a curl command for a machine's first service, or "".
func curlOf(ctx context.Context, cl *client.Client, m *machine.Machine) string {
	list := servicesOf(ctx, cl, m)
	for _, a := range services.Of(&list, cl) {
		if strings.HasPrefix(a.URL, "http") {
			return a.Curl()
		}
	}
	return ""
}

// serviceText describes a machine's service.
func serviceText(s *api.ServiceInfo) string {
	text := fmt.Sprintf("%s at its port %d: %s", s.Protocol, s.Port, services.Where(s))
	if !s.Autostart {
		text += "; requests do not start it"
	}
	if s.Autostop != "off" {
		text += fmt.Sprintf("; %s after %s without any", s.Autostop, services.Seconds(s.AutostopAfter))
	}
	return text
}
