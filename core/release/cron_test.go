package release

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

func TestInvalidJobsAreRefused(t *testing.T) {
	day, many := machine.Duration{Duration: 25 * time.Hour}, 21
	good := Group{Name: "job", Replicas: 1, Config: &machine.Config{Image: "i"}, Cron: &Cron{Schedule: "@daily"}}
	for want, edit := range map[string]func(g *Group){
		"never comes":                  func(g *Group) { g.Cron.Schedule = "0 0 30 2 *" },
		"zone \"Mars\"":                func(g *Group) { g.Cron.Zone = "Mars" },
		"use forbid, allow or replace": func(g *Group) { g.Cron.Overlap = "never" },
		"cron.start_within = 25h":      func(g *Group) { g.Cron.StartWithin = &day },
		"cron.keep = 21":               func(g *Group) { g.Cron.Keep = &many },
		"2 replicas are asked for":     func(g *Group) { g.Replicas = 2 },
		"no update":                    func(g *Group) { g.Update = &Update{} },
		"no single":                    func(g *Group) { g.Single = true },
		"no services":                  func(g *Group) { g.Config.Services = []machine.Service{{InternalPort: 80}} },
		"restart policy":               func(g *Group) { g.Config.Restart = &machine.Restart{Policy: "always"} },
		"has a volume": func(g *Group) {
			g.Config.Mounts, g.Cron.Overlap = []machine.Mount{{Path: "/data"}}, AllowBoth
		},
	} {
		g, cfg, c := good, *good.Config, *good.Cron
		g.Config, g.Cron = &cfg, &c
		edit(&g)
		r := &Release{Schema: Schema, Groups: []Group{g}}
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// TestCommandConfigOmitsPortsVolumesAndRestart: what no two machines can have is left out of a command's, and neither is started again.
func TestCommandConfigOmitsPortsVolumesAndRestart(t *testing.T) {
	of := &machine.Config{Image: "i", Env: map[string]string{"A": "b"}, Init: machine.Init{Cmd: []string{"serve"}},
		Services: []machine.Service{{InternalPort: 80}}, Mounts: []machine.Mount{{Path: "/data"}},
		Checks: map[string]machine.CheckConfig{"c": {}}, Restart: &machine.Restart{Policy: "always"},
		Network: &machine.Network{Mode: machine.NetworkOwn, Egress: []string{"none"}, From: []string{"other"},
			Publish: []machine.Publish{{HostPort: 80, Port: 80}}}}
	r := &Release{Groups: []Group{{Name: "web", Config: of}}, Command: &Command{Exec: []string{"migrate", "up"}}}
	run := machine.Replica{Group: "web", Run: machine.RunCommand}
	l := r.Launch(&run, "0123456789abcd", "")
	c := l.Config
	if len(c.Services)+len(c.Mounts)+len(c.Checks) > 0 || c.Restart.Policy != "no" || c.Env["A"] != "b" ||
		c.Env[CommandEnv] != "1" || fmt.Sprint(c.Init.Cmd) != "[migrate up]" || l.Name != "web-command-0123" {
		t.Errorf("%+v, %s", c, l.Name)
	}
	n := c.Network
	if n == nil || n.Mode != machine.NetworkOwn || len(n.Egress) != 1 || len(n.From)+len(n.Publish) > 0 {
		t.Errorf("the command's network is %+v", n)
	}
	if of.Env[CommandEnv] != "" || of.Init.Cmd[0] != "serve" {
		t.Errorf("the group's config is another now: %+v", of)
	}
	of.Image = machine.HostImage
	if c := r.Launch(&run, l.ID, "").Config; fmt.Sprint(c.Init.Exec) != "[migrate up]" || len(c.Init.Cmd) > 0 {
		t.Errorf("%+v", c.Init)
	}
	of.Restart = &machine.Restart{Policy: "on-failure", MaxRetries: 2}
	run.Run = machine.RunScheduled
	if c := r.Launch(&run, l.ID, "").Config; c.Restart.MaxRetries != 2 || c.Init.Cmd[0] != "serve" {
		t.Errorf("%+v", c.Restart)
	}
	of.Restart = nil
	if c := r.Launch(&run, l.ID, "").Config; c.Restart.Policy != "no" {
		t.Errorf("%+v", c.Restart)
	}
}
