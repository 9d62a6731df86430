package machines

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// placeFlags are the flags of souk run about placement.
type placeFlags struct {
	band      string
	priority  int
	require   []string
	prefer    []string
	tolerate  []string
	near      []string
	away      []string
	spread    []string
	labels    []string
	policy    string
	strategy  string
	evictions string
	set       *pflag.FlagSet
}

func (o *placeFlags) add(f *pflag.FlagSet) {
	o.set = f
	f.StringVar(&o.band, "band", "",
		"free, batch, service or system: what ranks lower may be evicted for it (default: service, and evicts nothing)")
	f.IntVar(&o.priority, "priority", 0, "0 to 999 within the band; larger goes first")
	f.StringArrayVar(&o.require, "require", nil,
		"a condition over the worker's attributes: 'arch == arm64', 'zone in a,b', '!spot'; repeatable")
	f.StringArrayVar(&o.prefer, "prefer", nil,
		"as --require, but only counts: CONDITION or WEIGHT:CONDITION, such as 5:'disk == ssd'; repeatable")
	f.StringArrayVar(&o.tolerate, "tolerate", nil, "a reservation of workers it may use; repeatable")
	f.StringArrayVar(&o.near, "near", nil,
		"APP or APP/ATTRIBUTE: on a worker (with the same ATTRIBUTE) where machines of the app are; repeatable")
	f.StringArrayVar(&o.away, "away", nil, "as --near, but away from them; repeatable")
	f.StringArrayVar(&o.spread, "spread", nil,
		"ATTRIBUTE or ATTRIBUTE:SKEW: the app's machines evenly over its values, with SKEW at most so uneven; "+
			"repeatable")
	f.StringArrayVar(&o.labels, "label", nil, "NAME=VALUE, which the requirements of workers may read; repeatable")
	f.StringVar(&o.policy, "policy", "", "the placement policy, by name (default: the app's)")
	f.StringVar(&o.strategy, "strategy", "", "direct, race, shared, batching or fair-share (default: the policy's)")
	f.StringVar(&o.evictions, "evictions", "",
		"MAX or MAX/WINDOW, such as 3/1h: how many machines of the app a worker may evict in that time; 0 is never")
}

// scheduling returns a launch's scheduling from the flags; nil: no flag was given.
func (o *placeFlags) scheduling() (*machine.Scheduling, error) {
	s := &machine.Scheduling{
		Band:     machine.Band(o.band),
		Priority: o.priority,
		Tolerate: o.tolerate,
		Policy:   o.policy,
		Strategy: o.strategy,
	}
	var err error
	if s.Require, err = cli.Requirements("--require", o.require); err != nil {
		return nil, err
	}
	if s.Prefer, err = preferences(o.prefer); err != nil {
		return nil, err
	}
	for _, list := range []struct {
		apps []string
		anti bool
	}{{o.near, false}, {o.away, true}} {
		for _, a := range list.apps {
			app, within, _ := strings.Cut(a, "/")
			s.Affinity = append(s.Affinity, machine.Affinity{App: app, Within: within, Anti: list.anti})
		}
	}
	for _, sp := range o.spread {
		attribute, skew, hard := strings.Cut(sp, ":")
		n, err := strconv.Atoi(skew)
		if hard && (err != nil || n < 1) {
			return nil, cli.Usagef("--spread is written ATTRIBUTE or ATTRIBUTE:SKEW, not %q", sp)
		}
		s.Spread = append(s.Spread, machine.Spread{Attribute: attribute, MaxSkew: n})
	}
	labels, err := KeyValues("--label", o.labels, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range labels {
		if s.Labels == nil {
			s.Labels = cluster.Attributes{}
		}
		s.Labels[k] = cluster.ParseValue(v)
	}
	if s.EvictionBudget, err = BudgetOf(o.evictions); err != nil {
		return nil, err
	}
	if why := s.Valid(); why != "" {
		return nil, cli.Usagef("%s", why)
	}
	if !o.said() {
		return nil, nil
	}
	return s, nil
}

// over returns the previous scheduling, overridden by the given flags.
func over(was, given *machine.Scheduling) *machine.Scheduling {
	if was == nil {
		return given
	}
	s := *was
	replace(&s.Require, given.Require)
	replace(&s.Prefer, given.Prefer)
	replace(&s.Tolerate, given.Tolerate)
	replace(&s.Affinity, given.Affinity)
	replace(&s.Spread, given.Spread)
	if len(given.Labels) > 0 {
		s.Labels = given.Labels
	}
	s.Band, s.Priority = cmp.Or(given.Band, s.Band), cmp.Or(given.Priority, s.Priority)
	s.Policy, s.Strategy = cmp.Or(given.Policy, s.Policy), cmp.Or(given.Strategy, s.Strategy)
	s.EvictionBudget = cmp.Or(given.EvictionBudget, s.EvictionBudget)
	return &s
}

func replace[T any](was *[]T, given []T) {
	if len(given) > 0 {
		*was = given
	}
}

// said reports whether any flag was given.
func (o *placeFlags) said() bool {
	return o.band != "" || o.set.Changed("priority") || o.policy != "" || o.strategy != "" || o.evictions != "" ||
		len(o.require)+len(o.prefer)+len(o.tolerate)+len(o.near)+len(o.away)+len(o.spread)+len(o.labels) > 0
}

func preferences(list []string) ([]cluster.Preference, error) {
	var out []cluster.Preference
	for _, s := range list {
		p := cluster.Preference{Weight: 1}
		if weight, rest, ok := strings.Cut(s, ":"); ok {
			if w, err := strconv.ParseFloat(weight, 64); err == nil {
				p.Weight, s = w, rest
			}
		}
		q, err := cluster.ParseRequirement(s)
		if err != nil {
			return nil, cli.Usagef("--prefer: %v", err)
		}
		p.Requirement = q
		out = append(out, p)
	}
	return out, nil
}

// BudgetOf reads "3", "3/1h" and "0".
func BudgetOf(s string) (*machine.EvictionBudget, error) {
	if s == "" {
		return nil, nil
	}
	most, window, timed := strings.Cut(s, "/")
	n, err := strconv.Atoi(most)
	b := &machine.EvictionBudget{Max: n}
	if err == nil && timed {
		b.Window.Duration, err = time.ParseDuration(window)
	}
	if err != nil {
		return nil, cli.Usagef("--evictions is written MAX or MAX/WINDOW, such as 3/1h, not %q", s)
	}
	return b, nil
}
