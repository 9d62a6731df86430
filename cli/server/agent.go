package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/store/decisionlog"
)

// agentFlags are the flags of souk agent. Each is also a key of its settings file: see readFile.
type agentFlags struct {
	config string
	offer  offerFlags
	doorFlags
	containerFlags
	volumeFlags
	proxyFlags
	removeFlags
	Dir    string
	Wire   string
	Gossip string
	Host   string
	Peers  []string
	Region string
	CPUs   int
	Memory cli.Size
	DNS    string
	Pace   string
	Level  string

	Between string

	DecisionMB int64
}

// A member's default ports.
const (
	defaultWire   = "0.0.0.0:4281"
	defaultGossip = "0.0.0.0:4282"
)

const agentLong = `Run this host as a member of a cluster: one worker, the API on loopback,
and what members need to know of each other. The directory must be a member's already: see "souk init" for the
first one, "souk join" for the others.

Any member answers for all: a machine is made on whichever worker suits it best, and every verb finds it through
any API. There is no leader and no quorum. A member that is cut off goes on with what it has, and takes what it has
room for.

Where the credential souk-key is given (systemd's LoadCredentialEncrypted), or SOUK_KEY_FILE names a file, the member's
keys are sealed with what is in it, and the agent does not start without: a copy of the disk opens no secret then.

When the agent ends, is upgraded or is killed, its machines go on running, and the next agent takes them over. With
--remove, once it has left, they end for good, and its volumes and reaper.

  API     127.0.0.1:4280   HTTP with a token; with TLS beyond loopback
  wire    0.0.0.0:4281     members only, HTTP/2 over mutual TLS
  gossip  0.0.0.0:4282     members only, UDP and TCP, encrypted
  tunnel  not by default   UDP 4283 with --network-between: between the machines of images on different hosts
  dns     not by default   APP.souk, GROUP.APP.souk and MACHINE.APP.souk: A, AAAA, SRV and TXT; anybody who reaches it may ask

Members that answer late, over slow links or because very many share few cores, need --pace wan, all of them: a
probe then waits 250 ms instead of 80, and a dead member is noticed after 3 to 7 s instead of 1 to 3.

The file named by --config is TOML. Each flag is a key of it, a repeatable one with a list; what is given here wins:

  dir    = "/var/lib/souk"
  region = "fra"
  host   = "10.0.0.7"
  attr   = ["zone=a", "disk=ssd"]`

// Agent makes the command "souk agent".
func Agent(c *cli.Env) *cobra.Command {
	o := new(agentFlags)
	cmd := &cobra.Command{Use: "agent", Short: "Run this host as a member of a cluster", Long: agentLong,
		Example: "  souk agent\n  souk agent --config /etc/souk/agent.toml\n  souk agent --dir /var/lib/souk --host " +
			"10.0.0.7 --attr zone=a", Args: cli.Args(0, 0, "no argument")}
	cmd.AddCommand(cmdAgentInstall(c), cmdAgentUninstall(c), cmdAgentLeave(c), cmdAgentLives(c), cmdAgentWithout(c))
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "a TOML file with these settings")
	f.StringVar(&o.Dir, "dir", "",
		"where the member's state is kept (default: /var/lib/souk, or for others than root souk/agent below "+
			"$XDG_STATE_HOME)")
	o.doorFlags.add(f)
	f.StringVar(&o.Wire, "wire", defaultWire, "HOST:PORT to listen on for other members' calls")
	f.StringVar(&o.Gossip, "gossip", defaultGossip, "HOST:PORT to listen on for gossip")
	f.StringVar(&o.Host, "host", "",
		"the host at which other members reach this one (default: this host's first address)")
	f.StringArrayVar(&o.Peers, "peer", nil,
		"HOST:PORT of the gossip of a member to look for, beside those that are known from before; repeatable")
	f.StringVar(&o.Pace, "pace", "lan", cli.PaceHelp)
	f.Int64Var(&o.DecisionMB, "decision-log-mb", decisionlog.DefaultMaxBytes>>20,
		"how many MiB of decisions to keep for souk explain; 0 keeps none")
	f.StringVar(&o.Region, "region", "local", "the region of the worker")
	f.IntVar(&o.CPUs, "cpus", 0, "how many CPUs to offer (default: those this host has)")
	f.Var(&o.Memory, "memory", "how much memory to offer, such as 64g (default: what this host has)")
	f.StringVar(&o.DNS, "dns", "",
		"HOST:PORT to answer DNS at, for names below souk, such as 127.0.0.1:4253 (default: not at all)")
	f.StringVar(&o.Between, "network-between", string(netplan.NoWay),
		"how machines of images reach those of other hosts: none; wireguard, encrypted and from members alone; vxlan, "+
			"in clear, for a network where nobody else is. All hosts the same")
	f.StringVar(&o.Level, "log", "warn", "what is logged: debug, info, warn or error")
	o.offer.add(f)
	o.containerFlags.add(f)
	o.volumeFlags.add(f)
	o.proxyFlags.add(f)
	o.removeFlags.add(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.config != "" {
			if err := readFile(cmd, o.config); err != nil {
				return err
			}
		}
		return doAgent(cmd.Context(), c, o)
	}
	return cmd
}

func doAgent(ctx context.Context, c *cli.Env, o *agentFlags) error {
	begin := time.Now()
	ctx, end := context.WithCancel(ctx) // also ended by a leave
	defer end()
	if err := o.doorFlags.check(); err != nil {
		return err
	}
	if err := o.removeFlags.check(); err != nil {
		return err
	}
	dir, err := c.AgentDir(o.Dir)
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return cli.Usagef("--log is debug, info, warn or error, not %q", o.Level)
	}
	knobs, err := cli.PaceOf(o.Pace)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: level}))
	ctx, next, err := followUpgrades(ctx, log)
	if err != nil {
		return err
	}
	service, err := managerOf(c.Getenv)
	if err != nil {
		return err
	}
	lock, err := claimDir(dir, lockMember)
	if err != nil {
		return err
	}
	defer lock.Close()
	if o.remove {
		return removeMember(ctx, c, o, dir, log)
	}
	warnMemory(c, o.Memory)
	a, err := openAgent(ctx, o, dir, knobs, log, next.doors.Listen, end)
	if err != nil {
		return err
	}
	next.serves()
	a.print(c, time.Since(begin))
	service.say(log, "READY=1", fmt.Sprintf("member %s is ready, its API at %s", a.m.ID(), a.doors.addr))
	defer context.AfterFunc(ctx, func() {
		if !next.due.Load() {
			service.say(log, "STOPPING=1", "the agent ends; machines go on")
		}
	})()
	calm(ctx, c, log)
	err = a.node.Run(ctx, a.doors.listeners...)
	a.doors.shut(dir)
	left := next.leave(ctx, a.node, log)
	err = errors.Join(err, a.node.Close())
	return next.done(err, func() {
		printStopped(c, left, "souk agent"+o.again(),
			"the same, and then souk destroy, or souk node drain "+string(a.m.ID()))
	})
}

// agent is a running souk agent.
type agent struct {
	dir   string
	m     *member.Member
	plan  node.Worker
	doors *doors
	dns   *names.Server // nil: no DNS server
	node  *node.Node

	containers containerPlan
	requests   proxyDoors
}

// openAgent locks and opens a member's directory, and all its listeners. left is called when the member has left the
// cluster.
func openAgent(ctx context.Context, o *agentFlags, dir string, knobs gossip.Knobs, log *slog.Logger,
	listen listenFunc, left func()) (a *agent, err error) {
	token, err := tokenOf(dir)
	if err != nil {
		return nil, err
	}
	a = &agent{dir: dir}
	if a.m, err = openMember(dir, o, knobs, log, listen, left); err != nil {
		return nil, err
	}
	if a.plan, err = planAgent(dir, o, a.m); err != nil {
		return nil, err
	}
	if a.doors, err = openDoors(dir, &o.doorFlags, hostsHere(o.Host), listen, log); err != nil {
		return nil, err
	}
	if a.containers, err = o.containerFlags.plan(dir); err != nil {
		return nil, errors.Join(err, a.doors.close())
	}
	if err := o.planBetween(&a.containers); err != nil {
		return nil, errors.Join(err, a.doors.close())
	}
	sized, err := o.volumeFlags.sized()
	if err != nil {
		return nil, errors.Join(err, a.doors.close())
	}
	if o.DNS != "" {
		if a.dns, err = names.Listen(o.DNS, a.m.Names(node.Addresses(), nil, nil)); err != nil {
			return nil, errors.Join(err, a.doors.close())
		}
	}
	if a.requests, err = o.proxyFlags.plan(listen); err != nil {
		return nil, errors.Join(err, a.doors.close())
	}
	a.node, err = node.New(
		ctx,
		node.Options{Dir: dir, Token: token, Region: cluster.Region(o.Region), Workers: []node.Worker{a.plan}, Log: log,
			DNS: a.dns, DecisionMB: o.DecisionMB, AllowRoot: o.offer.allowRoot, UnixUsers: a.doors.users, Member: a.m,
			Backfill:   backfill.Policy(o.offer.backfill),
			Containers: a.containers.how, Sized: sized, Proxy: a.requests.how,
			Build: cli.ThisBuild(), Grace: shutdownGrace, Reserve: true, Devices: o.offer.found(ctx, log),
			KeepToken: func(token string) error { return keepToken(dir, token) }},
	)
	if err != nil {
		return nil, errors.Join(err, a.doors.close())
	}
	if err := a.m.TellDoor(a.doors.forOthers()); err != nil {
		log.Warn("clients do not learn of this member's address", "err", err)
	}
	if err := a.doors.tell(dir); err != nil {
		return nil, errors.Join(err, a.doors.close(), a.node.Close())
	}
	return a, nil
}

// again returns the flags with which souk agent continues with the same directory.
func (o *agentFlags) again() string {
	if o.config != "" {
		return " --config " + o.config
	}
	return dirFlag(o.Dir)
}

// openMember opens what the member's directory holds. left is called when the member has left the cluster.
func openMember(dir string, o *agentFlags, knobs gossip.Knobs, log *slog.Logger, listen listenFunc, left func()) (
	*member.Member, error) {
	m, err := member.New(member.Options{
		Dir:    dir,
		Build:  cli.ThisBuild(),
		Region: cluster.Region(o.Region),
		Wire:   o.Wire,
		Listen: func(addr string) (net.Listener, error) { return listen("wire", addr) },
		Gossip: o.Gossip,
		Host:   hostOf(o.Host, o.Wire),
		Peers:  append(readLines(filepath.Join(dir, peersFile)), o.Peers...),
		Knobs:  knobs,
		Log:    log,
		Left:   left,
	})
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.Precondition, codeNotAMember,
			"%s is no member's directory yet: run \"souk init\" for the first member of a cluster, or \"souk join\" "+
				"for another",
			dir)
	}
	return m, err
}

// planAgent returns the plan of this host's one worker. Its id is the member's.
func planAgent(dir string, o *agentFlags, m *member.Member) (p node.Worker, err error) {
	p = node.Worker{ID: m.ID(), Dir: filepath.Join(dir, "worker")}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return p, fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s cannot be made", p.Dir)
	}
	if p.Capacity, err = capacityOf(dir, &devFlags{cpus: o.CPUs, memory: o.Memory}); err != nil {
		return p, err
	}
	if p.Offer, err = o.offer.of(1, &p.Capacity); err != nil {
		return p, err
	}
	if _, set := p.Offer.Attributes[broker.AddressAttribute]; !set {
		host, _, err := net.SplitHostPort(m.Address())
		if err == nil {
			// the address by which a gang's machines find each other
			p.Offer.Attributes[broker.AddressAttribute] = cluster.Text(host)
		}
	}
	return p, nil
}

// print says that the agent is ready, where it listens, and what to type next.
func (a *agent) print(c *cli.Env, took time.Duration) {
	dns := ""
	if a.dns != nil {
		dns = a.dns.Addr()
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]any{"addr": a.doors.addr, "root": a.doors.root, "dir": a.dir,
			"token_file": filepath.Join(a.dir, "token"), "member": a.m.ID(), "wire": a.m.Address(),
			"gossip": a.m.GossipAddress(), "dns": dns, "pid": os.Getpid()})
		return
	}
	fmt.Fprintf(c.Out, "member %s is ready after %s; its state is in %s\n", a.m.ID(), cli.Millis(took), a.dir)
	fmt.Fprintf(c.Out, "  offers  %s\n  API     %s, token in %s\n  wire    %s\n  gossip  %s\n", a.plan.Capacity,
		a.doors.addr, filepath.Join(a.dir, "token"), a.m.Address(), a.m.GossipAddress())
	if dns != "" {
		fmt.Fprintf(c.Out, "  dns     %s, for names below souk\n", dns)
	}
	printUsers(c)
	a.containers.say(c)
	a.requests.say(c)
	a.doors.printRoot(c, a.dir)
	a.doors.printUsersDoor(c, a.dir)
	next, given := "souk members, which finds this agent by itself", ""
	if home, err := c.AgentDir(""); err != nil || home != a.dir {
		given, next = a.dir, "export SOUK_ADDR=unix:"+filepath.Join(a.dir, cli.SocketFile)+", then souk members"
	}
	if a.m.Issuer() != nil {
		fmt.Fprintf(c.Out, "  more    souk token join%s, then on another host: souk join %s --token ...\n",
			dirFlag(given), a.m.Address())
	}
	fmt.Fprintf(c.Out, "  next    %s\n", next)
}

// hostOf returns the host that others reach this one at: the given one, the listen address, or this host's first
// address that is not loopback.
func hostOf(given, listen string) string {
	if given != "" {
		return given
	}
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host
	}
	addrs, _ := net.InterfaceAddrs() // on an error only loopback is left
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
