package doctor

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Version makes the command "souk version".
func Version(c *cli.Env) *cobra.Command {
	sbom := false
	cmd := &cobra.Command{Use: "version",
		Short: "Print the version of this program, and of the server when one answers",
		Long: `Print the version of this program, and the commit that it was built of, with its date. 0.1.0 is a release; 0.1.0-dev is
on the way to it. Go notes the commit where it builds in a git checkout ("make build", "go build"); "go run" notes none, nor
does Go in a worktree of git, or where GOFLAGS has -buildvcs=false ("make build" notes it then, too). Where a server answers,
its version is printed, too. "souk members" shows that of each member, and the metric souk_build_info that of the one asked.`,
		Example: "  souk version\n  souk version --json\n  souk version --sbom > souk.cdx.json",
		Args:    cli.Args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sbom {
				return printBill(c)
			}
			v := struct {
				cluster.Build
				Go     string          `json:"go"`
				Server *api.ServerInfo `json:"server"`
			}{Build: cli.ThisBuild(), Go: goruntime.Version()}
			if cl, err := c.Client(); err == nil {
				if sv, err := cl.Version(cmd.Context()); err == nil {
					v.Server = &sv
				} else if !fault.Is(err, fault.Unavailable) {
					return err
				}
			}
			if c.JSON {
				c.JSONLine(c.Out, v)
				return nil
			}
			fmt.Fprintf(c.Out, "souk %s (%s)\n", v.Build, v.Go)
			if from := cli.SourceOf(v.Build); from != "" {
				c.Printf("  %s\n", from)
			}
			if v.Server != nil {
				fmt.Fprintf(c.Out, "server %s (%s)\n", v.Server.Build, v.Server.Go)
			}
			return nil
		}}
	cmd.Flags().BoolVar(&sbom, "sbom", false,
		"print what this program is made of instead: its modules, as CycloneDX 1.5 JSON")
	return cmd
}

// bill is a software bill of materials, in the format CycloneDX 1.5 (ECMA-424).
type bill struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

// printBill prints the modules that this program was built from, as recorded in the binary.
func printBill(c *cli.Env) error {
	info, there := debug.ReadBuildInfo()
	if !there {
		return fault.New(fault.Internal, codeSbom, "this program has no list of the modules it was built from: "+
			"build it with Go modules")
	}
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   metadata{component{Type: "application", Name: "souk", Version: cli.Version()}},
		Components: []component{{"library", "std", info.GoVersion, "pkg:golang/std@" + info.GoVersion}}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, component{"library", m.Path, m.Version,
			"pkg:golang/" + m.Path + "@" + m.Version})
	}
	c.JSONLine(c.Out, b)
	return nil
}
