package complete

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	job "github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/machine"
)

// nouns maps each noun of a usage line to its completion. Nouns that users make up (NAME, KEY=VALUE) have none.
func nouns() map[string]value {
	path := value{list: machines, colon: true, file: true}
	return map[string]value{
		"MACHINE": {list: machines}, "JOB": {list: jobs}, "APP": {list: apps}, "NODE": {list: nodes},
		"MEMBER": {list: nodes}, "VOLUME": {list: volumes}, "SECRET": {list: secrets}, "POLICY": {list: policies},
		"IMAGE": {list: images}, "NAMESPACE": {list: namespaces}, "CONTEXT": {list: contexts}, "TOKEN": {list: tokens},
		"FILE": {file: true}, "FROM": path, "TO": path, "MACHINE|APP": {list: machinesAndApps},
	}
}

// values maps each flag's name to the completion of its value.
func values() map[string]value {
	file, dir := value{file: true}, value{dir: true}
	v := map[string]value{
		"app": {list: apps}, "context": {list: contexts}, "policy": {list: policies, kind: "string"},
		"region": {list: regions, many: true}, "near": {list: apps}, "away": {list: apps},
		"spread": {list: attributes}, "same": {list: attributes}, "require": {list: attributes, more: true},
		"prefer": {list: attributes, more: true}, "tolerate": {list: reservations},
		"volume":   {list: volumes, colon: true},
		"band":     {list: words("free", "batch", "service", "system")},
		"backfill": {list: words("easy", "conservative", "fcfs"), kind: "policy"},
		"unmet":    {list: words("cancel", "wait"), kind: "string"},
		"after":    {list: jobs, kind: "stringArray"},
		"by":       {list: words(accounts.ByWords()...), kind: "string"},

		"kill-on-invalid-dep": {list: words("yes", "no")},
		"input":               file, "output": file, "error": file,
		"class":     {list: words("short", "long"), kind: "string"},
		"priority":  {list: words("high", "normal", "low"), kind: "string"},
		"scheduler": {list: words(registry.Names()...), kind: "string"},
		"namespace": {list: namespaces},
		"strategy":  {list: words("direct", "race", "shared", "batching", "fair-share")},
		"cpu-kind":  {list: words("shared", "performance")}, "restart": {list: words("no", "on-failure", "always")},
		"schedule":        {list: words("hourly", "daily", "weekly", "monthly")},
		"pace":            {list: words("lan", "wan")},
		"autostop":        {list: words("stop", "suspend", "off")},
		"network-between": {list: words("none", "wireguard", "vxlan")},

		"network": {list: words("own", "none", "host")}, "allow-from": {list: apps}, "egress": {list: words("none")},

		"volumes":    {list: words("auto", "sized", "directory")},
		"containers": {list: words("auto", "off", "runc", "crun", "runsc"), more: true},
		"runtime":    {list: runtimes},
		"release":    {list: releases},
		"signal":     {list: words(machine.SignalNames()...)}, "stop-signal": {list: words(machine.SignalNames()...)},
		"role":   {list: words(roles()...), kind: "string"},
		"gpus":   {list: gpus, more: true, kind: "string"},
		"gang":   {list: gangs},
		"worker": {list: workers, many: true}, "to": {list: nodes, kind: "string"},
		"state":      {list: words("created", "started", "stopped", "suspended", "failed", "destroyed")},
		"unix-user":  {list: people},
		"unix-users": {list: allOrPeople, more: true},
		"dir":        dir, "traces": dir, "unit-dir": dir, "certs": dir, "cdi-dir": dir, "chdir": dir,
		"open-mode": {list: words("append", "truncate")},
	}
	for _, name := range []string{"access-log", "from", "file", "env-file", "config", "tls-cert", "tls-key",
		"token-file", "root",
		"registry-config",
		"trace", "report", "history", "html", "log", "tasks", "workers", "jobs", "against", "with", "out", "exec",
		"send", "stdin", "stdout", "stderr", "swf"} {
		v[name] = file
	}
	return v
}

func words(list ...string) source {
	return func(context.Context, *cli.Env) ([]string, error) { return slices.Clone(list), nil }
}

// of makes a source from a list call of the API.
func of[T any](list func(context.Context, *cli.Env, *client.Client) ([]T, error), each func(T) []string) source {
	return func(ctx context.Context, c *cli.Env) ([]string, error) {
		cl, err := c.Client()
		if err != nil {
			return nil, err
		}
		all, err := list(ctx, c, cl)
		var out []string
		for _, t := range all {
			out = append(out, each(t)...)
		}
		slices.Sort(out)
		return slices.Compact(out), err
	}
}

// described is a word with a description, for shells that show one.
func described(word, text string) string { return word + "\t" + text }

func machines(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, c *cli.Env, cl *client.Client) ([]*machine.Line, error) {
		return cl.MachineLines(ctx, client.LineOptions{App: c.AppGiven()})
	}, func(m *machine.Line) []string {
		out := []string{described(m.ID, m.Name+", "+string(m.State))}
		if m.Name != "" {
			out = append(out, described(m.Name, m.ID+", "+string(m.State)))
		}
		if m.Replica != "" {
			out = append(out, described(m.Replica, m.ID+" of app "+m.App+", "+string(m.State)))
		}
		if m.Gang != "" {
			out = append(out, described(m.Gang, "gang of app "+m.App))
		}
		return out
	})(ctx, c)
}

// gangs lists the ids of gangs with a machine.
func gangs(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, c *cli.Env, cl *client.Client) ([]*machine.Line, error) {
		return cl.MachineLines(ctx, client.LineOptions{App: c.AppGiven()})
	}, func(m *machine.Line) []string {
		if m.Gang == "" {
			return nil
		}
		return []string{strings.TrimPrefix(m.Gang, machine.GangPrefix)}
	})(ctx, c)
}

// releases lists the releases of the given app, or of this directory's.
func releases(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, c *cli.Env, cl *client.Client) ([]api.ReleaseEntry, error) {
		return cl.Releases(ctx, cmp.Or(c.AppGiven(), cli.FolderApp()))
	}, func(r api.ReleaseEntry) []string {
		return []string{described(r.Release, r.State+", "+r.Why)}
	})(ctx, c)
}

func jobs(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, c *cli.Env, cl *client.Client) ([]job.Job, error) {
		return cl.Jobs(ctx, c.AppGiven())
	}, func(j job.Job) []string {
		out := []string{described(j.ID, string(j.State))}
		if j.Spec.Name != "" {
			out = append(out, described(j.Spec.Name, string(j.State)))
		}
		return out
	})(ctx, c)
}

func apps(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, _ *cli.Env, cl *client.Client) ([]api.App, error) { return cl.Apps(ctx) },
		func(a api.App) []string { return []string{a.Name} })(ctx, c)
}

func machinesAndApps(ctx context.Context, c *cli.Env) ([]string, error) {
	ms, err := machines(ctx, c)
	if err != nil {
		return nil, err
	}
	as, err := apps(ctx, c)
	return append(ms, as...), err
}

func volumes(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, c *cli.Env, cl *client.Client) ([]machine.Volume, error) {
		return cl.Volumes(ctx, c.AppOrDefault())
	}, func(v machine.Volume) []string { return []string{described(v.ID, v.Name), described(v.Name, v.ID)} })(ctx, c)
}

func secrets(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, c *cli.Env, cl *client.Client) ([]api.Secret, error) {
		return cl.Secrets(ctx, c.AppOrDefault())
	}, func(s api.Secret) []string { return []string{s.Name} })(ctx, c)
}

func policies(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, _ *cli.Env, cl *client.Client) ([]api.PolicyInfo, error) {
		return cl.Policies(ctx)
	}, func(p api.PolicyInfo) []string { return []string{described(p.Name, p.Summary)} })(ctx, c)
}

func namespaces(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, _ *cli.Env, cl *client.Client) ([]api.Namespace, error) {
		return cl.Namespaces(ctx)
	}, func(n api.Namespace) []string { return []string{n.Name} })(ctx, c)
}

func tokens(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, _ *cli.Env, cl *client.Client) ([]api.Token, error) { return cl.Tokens(ctx) },
		func(t api.Token) []string {
			return []string{described(t.ID, t.Name), described(t.Name, string(t.Role))}
		})(ctx, c)
}

// nodes lists the hosts of the cluster, even unreachable ones: a lost one may have to be removed.
func nodes(ctx context.Context, c *cli.Env) ([]string, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, err
	}
	members, err := cl.Members(ctx)
	var out []string
	for _, m := range members {
		out = append(out, string(m.ID))
	}
	if len(out) > 0 || err != nil {
		return out, err
	}
	// Without a cluster, as in souk dev, there are only workers.
	return workers(ctx, c)
}

func ofWorkers(each func(cluster.Record) []string) source {
	return of(func(ctx context.Context, _ *cli.Env, cl *client.Client) ([]cluster.Record, error) {
		list, err := cl.Workers(ctx)
		return list.Workers, err
	}, each)
}

func workers(ctx context.Context, c *cli.Env) ([]string, error) {
	return ofWorkers(func(w cluster.Record) []string { return []string{string(w.Worker)} })(ctx, c)
}

func regions(ctx context.Context, c *cli.Env) ([]string, error) {
	return ofWorkers(func(w cluster.Record) []string { return []string{string(w.Region)} })(ctx, c)
}

func attributes(ctx context.Context, c *cli.Env) ([]string, error) {
	return ofWorkers(func(w cluster.Record) []string { return slices.Collect(maps.Keys(w.Attributes)) })(ctx, c)
}

func people(ctx context.Context, _ *cli.Env) ([]string, error) { return unixuser.People(ctx) }

func allOrPeople(ctx context.Context, _ *cli.Env) ([]string, error) {
	names, err := unixuser.People(ctx)
	return append([]string{cluster.AllUnixUsers}, names...), err
}

// runtimes lists the OCI runtimes that some worker has.
func runtimes(ctx context.Context, c *cli.Env) ([]string, error) {
	return ofWorkers(func(w cluster.Record) (out []string) {
		for a := range w.Attributes {
			if name, is := strings.CutPrefix(a, cluster.RuntimeAttribute("")); is {
				out = append(out, name)
			}
		}
		return out
	})(ctx, c)
}

func reservations(ctx context.Context, c *cli.Env) ([]string, error) {
	return ofWorkers(func(w cluster.Record) []string { return w.Reserved })(ctx, c)
}

func gpus(ctx context.Context, c *cli.Env) ([]string, error) {
	return ofWorkers(func(w cluster.Record) []string {
		var out []string
		for _, g := range w.GPUs {
			out = append(out, g.Kind)
		}
		return out
	})(ctx, c)
}

// images lists the names of the workers' images, and the digests of unnamed ones.
func images(ctx context.Context, c *cli.Env) ([]string, error) {
	return of(func(ctx context.Context, _ *cli.Env, cl *client.Client) ([]cluster.ImageStore, error) {
		list, err := cl.Images(ctx)
		return list.Stores, err
	}, func(s cluster.ImageStore) (out []string) {
		for _, i := range s.Images {
			for _, name := range i.Names {
				out = append(out, strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/"))
			}
			if len(i.Names) == 0 {
				out = append(out, i.Digest)
			}
		}
		return out
	})(ctx, c)
}

func contexts(_ context.Context, c *cli.Env) ([]string, error) {
	all, err := c.Contexts()
	return append(all.Names(), cli.AgentContext, cli.DevContext), err
}

func roles() []string {
	var out []string
	for _, r := range api.Roles() {
		out = append(out, string(r))
	}
	return out
}
