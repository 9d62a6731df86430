package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/image/remote"
	"github.com/soukhq/souk/runtime/oci"
)

// containerFlags say how images run, and where they come from.
type containerFlags struct {
	Containers     string
	RegistryConfig string
	Mirrors        []string
	ImageBudget    cli.Size
	Ready          int
	AllowHost      bool
	ForwardChain   string
}

// Values of --containers other than the name of an OCI runtime.
const (
	containersAuto = "auto"
	containersOff  = "off"
)

// budgetShare is the part of its disk that unused images may take by default.
const budgetShare = 5

// readyMachines is the default number of stopped machines with a prepared container.
const readyMachines = 16

func (o *containerFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.Containers, "containers", containersAuto,
		"the OCI runtimes that run images, names or paths, the first for machines that ask for none; auto: runc, and "+
			"runsc (gVisor) beside it, where souk is root and has them; off: none")
	f.StringVar(&o.RegistryConfig, "registry-config", "",
		"a file with credentials of registries, as docker login writes it")
	f.StringArrayVar(&o.Mirrors, "mirror", nil,
		"REGISTRY=HOST[:PORT] or REGISTRY=URL, asked for the images of REGISTRY first; repeatable")
	f.BoolVar(&o.AllowHost, "allow-host-network", false,
		"let machines of images share their host's network where they ask for it (souk run --network host)")
	f.StringVar(&o.ForwardChain, "forward-chain", "",
		"a chain of the host's own firewall (nftables) in which souk lets packets of its containers pass: DOCKER-USER "+
			"beside Docker, FORWARD beside ufw, or FAMILY/TABLE/CHAIN; without it souk changes no rule of others")
	f.Var(&o.ImageBudget, "image-budget",
		"how much disk images may take, such as 50g; those that no machine uses go first (default: a fifth of it)")
	f.IntVar(&o.Ready, "ready", readyMachines,
		"how many stopped machines have a container made ahead, so that they start at once; each takes some MB")
}

// containerPlan says how images run: by how, or if that is nil not at all, and why.
type containerPlan struct {
	how *node.Containers
	why string

	blocked error // the host's firewall rule that blocks containers' packets; nil: none known
}

// plan decides how the workers of a directory run images. It is an error that they cannot only if containers were asked
// for.
func (o *containerFlags) plan(dir string) (p containerPlan, err error) {
	var engines []string
	switch o.Containers {
	case containersOff:
		p.why = "--containers is off"
		return p, nil
	case containersAuto, "":
		if err := oci.Able(oci.DefaultEngine); err != nil {
			p.why = fault.As(err).Text
			return p, nil
		}
		engines = append(engines, oci.DefaultEngine)
		if oci.Able(oci.Sandbox) == nil {
			engines = append(engines, oci.Sandbox)
		}
	default:
		for name := range strings.SplitSeq(o.Containers, ",") {
			if err := oci.Able(name); err != nil {
				return p, err
			}
			engines = append(engines, name)
		}
	}
	if o.Ready < 0 {
		return p, cli.Usagef("--ready is a number of machines from 0 up, not %d", o.Ready)
	}
	p.how = &node.Containers{Engines: engines, Budget: int64(o.ImageBudget) << 20, Ready: o.Ready,
		Registries: map[string]remote.Registry{}, AllowHost: o.AllowHost, NoNetwork: hostnet.Able(),
		ForwardChain: o.ForwardChain}
	if o.ForwardChain == "" && p.how.NoNetwork == nil {
		p.blocked = hostnet.Blocked()
	}
	if p.how.Budget == 0 {
		if p.how.Budget, err = shareOfDisk(dir); err != nil {
			return p, err
		}
	}
	for _, m := range o.Mirrors {
		registry, at, ok := strings.Cut(m, "=")
		if !ok || registry == "" || at == "" {
			return p, cli.Usagef("--mirror is written REGISTRY=HOST[:PORT] or REGISTRY=URL, not %q", m)
		}
		r := p.how.Registries[registry]
		r.Mirrors = append(r.Mirrors, at)
		p.how.Registries[registry] = r
	}
	if o.RegistryConfig != "" {
		p.how.Credentials, err = remote.DockerConfig(o.RegistryConfig)
	}
	return p, err
}

// shareOfDisk returns how many bytes images may take on a directory's file system.
func shareOfDisk(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "the disk of %s does not say how large it is", dir)
	}
	return int64(st.Blocks) * st.Bsize / budgetShare, nil //nolint:gosec // no disk has 2^63 blocks
}

// say prints how images run, or why they do not if the user could change that.
func (p containerPlan) say(c *cli.Env) {
	switch {
	case p.how != nil:
		by := filepath.Base(p.how.Engines[0])
		for _, e := range p.how.Engines[1:] {
			by += fmt.Sprintf(", or by %s where a machine asks for it (--runtime %[1]s)", filepath.Base(e))
		}
		fmt.Fprintf(c.Out, "  images are run by %s\n", by)
		if err := p.how.NoNetwork; err != nil {
			fmt.Fprintf(c.Out, "  those that want a network are refused: %v\n", err)
		} else if p.how.Between != "" {
			fmt.Fprintf(c.Out, "  those of other hosts are reached by %s\n", p.how.Between)
		}
		if p.blocked != nil {
			fmt.Fprintf(c.Out, "  %v\n", p.blocked)
		}
	case os.Geteuid() == 0:
		fmt.Fprintf(c.Out, "  no images are run: %s\n", p.why)
	}
}
