package server

import (
	"context"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/hostnet/wgspace"
)

// helperCommand is the hidden command "souk wireguard NAME MTU": WireGuard in user space, which outlives the agent.
const helperCommand = "wireguard"

// WireGuardMain runs that command. It reports whether the arguments are for it.
func WireGuardMain(argv []string) (own bool, err error) {
	if len(argv) != 3 || argv[0] != helperCommand {
		return false, nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return true, wgspace.Run(ctx, argv[1], argv[2])
}

// planBetween decides how containers reach those of other hosts.
func (o *agentFlags) planBetween(p *containerPlan) error {
	way, ok := netplan.ParseWay(o.Between)
	if !ok {
		return cli.Usagef("--network-between is none, vxlan or wireguard, not %q", o.Between)
	}
	if way == netplan.NoWay {
		return nil
	}
	if p.how == nil {
		return fault.New(fault.Precondition, hostnet.CodeNetworkBetween,
			"--network-between is for containers, and this worker runs none: %s", p.why)
	}
	host := hostOf(o.Host, o.Wire)
	at, err := netip.ParseAddr(host)
	if err != nil || !at.IsGlobalUnicast() {
		return cli.Usagef("--network-between needs an IP address at which the other hosts reach this one, not %q: "+
			"give --host", host)
	}
	exe, err := os.Executable()
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeExecutable, "the path of the souk binary cannot be found")
	}
	p.how.Between, p.how.BetweenAt, p.how.Helper = way, at.Unmap(), []string{exe, helperCommand}
	return nil
}
