package devices

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// CodeDevice says that the device is missing or cannot be given.
const CodeDevice fault.Code = "device"

// Options of a set.
type Options struct {
	Host  Host
	Hooks bool // run the hooks of specifications
	// Withheld is why no device is granted at all; "": healthy devices are granted
	Withheld string
	// Claims is a directory that lasts until the host reboots, in which the souks of a host lock the devices that they
	// grant; "": there is no other souk
	Claims string
	Log    *slog.Logger
}

// Set is the devices of a host, as found last. A nil Set is a host without devices. Its methods may be called from many
// goroutines.
type Set struct {
	o Options

	mu    sync.Mutex
	found Found
	own   claims
	gone  []Device // devices found earlier and missing now; their nodes stay denied
}

// Open finds the devices of a host.
func Open(ctx context.Context, o Options) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{o: o, own: claims{dir: o.Claims}}
	s.Look(ctx)
	return s
}

// Look finds the host's devices again, and reports whether the offer changed.
func (s *Set) Look(ctx context.Context) (changed bool) {
	found := s.o.Host.Find(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false // the tool was interrupted, so its result means nothing
	}
	for _, fault := range found.Faults {
		if !slices.Contains(s.found.Faults, fault) {
			s.o.Log.Warn("devices: " + fault)
		}
	}
	if !s.o.Hooks {
		for _, file := range found.Hooked {
			if !slices.Contains(s.found.Hooked, file) {
				s.o.Log.Warn("devices: "+hooked, "specification", file)
			}
		}
	}
	had := s.offerLocked()
	for _, d := range s.found.Devices {
		if !hasDevice(found.Devices, d.ID) {
			s.o.Log.Warn("devices: a device is gone", "device", d.ID, "kind", d.Kind)
			s.gone = append(s.gone, d)
		}
	}
	s.gone = slices.DeleteFunc(s.gone, func(d Device) bool { // it is back, maybe under another name
		return slices.ContainsFunc(found.Devices, func(o Device) bool {
			return o.ID == d.ID || o.nodeKey() != "" && o.nodeKey() == d.nodeKey()
		})
	})
	if s.o.Withheld == "" {
		for i := range found.Devices {
			d := &found.Devices[i]
			d.Health = cmp.Or(s.own.claimDevice(d.ID), d.Health)
		}
	}
	for _, d := range found.Devices {
		i := slices.IndexFunc(s.found.Devices, func(o Device) bool { return o.ID == d.ID })
		if i < 0 || s.found.Devices[i].Health != d.Health {
			s.o.Log.Info("devices: found", "device", d.ID, "kind", d.Kind, "model", d.Model, "memory_mib", d.Memory,
				"health", d.Health)
		}
	}
	s.found = found
	return !slices.Equal(had, s.offerLocked())
}

const hooked = "it has hooks, which are not run: what they would do is missing in containers, links to libraries for " +
	"the most part; souk agent --cdi-hooks has them run as root"

func hasDevice(list []Device, id string) bool {
	return slices.ContainsFunc(list, func(d Device) bool { return d.ID == id })
}

// Offer lists the devices for the worker's record, including those that are gone.
func (s *Set) Offer() []cluster.GPU {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offerLocked()
}

// Gone is the health of a device that was found earlier and is missing now.
const Gone = "it is not there any more"

func (s *Set) offerLocked() []cluster.GPU {
	var out []cluster.GPU
	for _, d := range s.found.Devices {
		out = append(out, offeredGPU(d, cmp.Or(d.Health, s.o.Withheld)))
	}
	for _, d := range s.gone {
		out = append(out, offeredGPU(d, Gone))
	}
	return out
}

func offeredGPU(d Device, health string) cluster.GPU {
	return cluster.GPU{Kind: d.Kind, Free: 1000, ID: d.ID, Node: d.nodeKey(), Model: d.Model, Memory: d.Memory,
		Health: health}
}

// Denied returns what a machine that holds the devices of these ids may not use.
func (s *Set) Denied(held []string) Denied {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.found
	all.Devices = slices.Concat(s.found.Devices, s.gone)
	return all.Denied(held)
}

// Given is what a machine gets for its devices.
type Given struct {
	Nodes  []Node
	Env    []string // KEY=VALUE; of two with one name the later counts
	Mounts []Mount
	Hooks  []Hook
}

// Give returns what a machine that holds the devices of these ids gets.
func (s *Set) Give(held []string) (Given, error) {
	var g Given
	if len(held) == 0 {
		return g, nil
	}
	if s == nil {
		s = new(Set)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var visibles []string
	for _, id := range held {
		i := slices.IndexFunc(s.found.Devices, func(d Device) bool { return d.ID == id })
		if i < 0 {
			return g, fault.New(fault.Unavailable, CodeDevice, "the device %s, which the machine was granted, is "+
				"missing: see souk doctor, or stop and start the machine, which grants it another", id)
		}
		d := &s.found.Devices[i]
		if d.vendor == "nvidia" {
			visibles = append(visibles, d.ID)
		}
		for _, n := range d.Nodes {
			if !slices.Contains(g.Nodes, n) {
				g.Nodes = append(g.Nodes, n)
			}
		}
		for _, m := range d.Mounts {
			if !slices.ContainsFunc(g.Mounts, func(o Mount) bool { return o.To == m.To }) {
				g.Mounts = append(g.Mounts, m)
			}
		}
		for _, h := range d.Hooks {
			same := func(o Hook) bool { return o.When == h.When && o.Path == h.Path && slices.Equal(o.Args, h.Args) }
			if s.o.Hooks && !slices.ContainsFunc(g.Hooks, same) {
				g.Hooks = append(g.Hooks, h)
			}
		}
		g.Env = append(g.Env, d.Env...)
	}
	if len(visibles) > 0 {
		g.Env = append(g.Env, visibleVariables(strings.Join(visibles, ","))...)
	}
	return g, nil
}

// Libraries returns the directory of the driver's libraries in a container, "" if a specification has them elsewhere.
func (g *Given) Libraries() string {
	for _, m := range g.Mounts {
		if isBelow(m.To, nvidiaFolder) {
			return nvidiaFolder + "/lib64"
		}
	}
	return ""
}

// SetEnv returns env with the variables of to; a later variable replaces earlier ones of the same name.
func SetEnv(env, to []string) []string {
	out := slices.Clone(env)
	for _, kv := range to {
		name, _, _ := strings.Cut(kv, "=")
		out = slices.DeleteFunc(out, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		out = append(out, kv)
	}
	return out
}

// Examine reports the devices, and those left out.
func (s *Set) Examine() []cluster.Finding {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []cluster.Finding
	for _, g := range s.offerLocked() {
		f := cluster.Finding{Name: "device: " + g.ID, OK: g.Health == "" || g.Health == s.o.Withheld, Have: g.Text()}
		if !f.OK {
			f.Advice = "it is granted to nobody until that is mended; the other devices go on"
		}
		out = append(out, f)
	}
	for _, fault := range s.found.Faults {
		out = append(out, cluster.Finding{Name: "device: left out", Have: fault,
			Advice: "mend it, and it is found within " + Every.String() + " without a restart"})
	}
	for _, file := range s.found.Hooked {
		f := cluster.Finding{Name: "device: " + file, OK: s.o.Hooks, Have: "its hooks are run, as the operator says"}
		if !s.o.Hooks {
			f.Have, f.Advice = "it has hooks, which are not run", "have a specification without hooks made, or have "+
				"them run as root: souk agent --cdi-hooks"
		}
		out = append(out, f)
	}
	return out
}

// Every is the usual time between two looks at the host.
const Every = 30 * time.Second

// soon replaces Every while another souk grants devices: that souk may be about to end, and this one to take its place.
const soon = 3 * time.Second

// Next returns when to look at the host again.
func (s *Set) Next() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.found.Devices, func(d Device) bool { return d.Health == elsewhere }) {
		return soon
	}
	return Every
}
