package server

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/pki"
)

// Init makes the command "souk init".
func Init(c *cli.Env) *cobra.Command {
	var dir, id, config string
	cmd := &cobra.Command{Use: "init", Short: "Make the first member of a new cluster",
		Long: `Make a cluster: a certificate authority and the identity of its first
member, in one directory. Nothing is started, and nobody is asked; "souk agent" starts the member, or "souk agent
install" makes a service of it.

The authority's key stays in DIR/ca. Whoever has it can let members in, so keep a copy in a safe place: without it
no member can join, and certificates end after 90 days. Members renew theirs by themselves, for as long as an agent
with that directory can be reached.`,
		Example: "  souk init\n  souk init --dir /var/lib/souk --id fra-1", Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dir, "dir", "", "where the member's state is kept (default: as souk agent)")
	cmd.Flags().StringVar(&id, "id", "", "the member's id (default: the host's name and four letters)")
	cmd.Flags().StringVar(&config, "config", "", settingsHelp)
	cmd.RunE = func(*cobra.Command, []string) error { return doInit(c, dir, id, config) }
	return cmd
}

func doInit(c *cli.Env, given, id, config string) error {
	dir, err := c.AgentDir(given)
	if err != nil {
		return err
	}
	if config, err = settingsOf(config, given); err != nil {
		return err
	}
	if id, err = memberID(id); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s cannot be made", dir)
	}
	now := time.Now()
	ca, err := pki.Init(filepath.Join(dir, member.CADir), now)
	if err != nil {
		return err
	}
	name := pki.Name{ID: id, Roles: []pki.Role{pki.Gateway, pki.Issuer, pki.Worker}}
	if err := ca.IssueTo(filepath.Join(dir, member.IdentityDir), name, now); err != nil {
		return err
	}
	settings, err := writeSettings(config, dir)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]string{"member": id, "dir": dir, "config": config})
		return nil
	}
	fmt.Fprintf(c.Out, "a new cluster; its first member is %s, in %s\n", id, dir)
	fmt.Fprintf(c.Out, "  keep      a copy of %s in a safe place\n", filepath.Join(dir, member.CADir))
	printStart(c, given, config, settings)
	fmt.Fprintf(c.Out, "  then      souk token join%s, for each member more\n", dirFlag(given))
	return nil
}

// printStart prints where a new member's settings are and how to start it.
func printStart(c *cli.Env, given, config, settings string) {
	if config == "" {
		fmt.Fprintf(c.Out, "  next      souk agent%s\n", dirFlag(given))
		return
	}
	fmt.Fprintf(c.Out, "  settings  %s\n", settings)
	install := "souk agent install"
	if config != settingsFile {
		install += " --config " + config
	}
	fmt.Fprintf(c.Out, "  next      %s, as a service; or by hand souk agent --config %s\n", install, config)
}

// dirFlag returns the flag with which the next command finds a directory that was given.
func dirFlag(given string) string {
	if given == "" {
		return ""
	}
	return " --dir " + given
}

// memberID checks an id, or makes one from the host's name.
func memberID(id string) (string, error) {
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "member"
		}
		host, _, _ = strings.Cut(strings.ToLower(host), ".")
		var b [2]byte
		rand.Read(b[:]) // never fails
		id = host + "-" + hex.EncodeToString(b[:])
		if !pki.ValidID(id) {
			id = "member-" + hex.EncodeToString(b[:])
		}
	}
	if !pki.ValidID(id) {
		return "", cli.Usagef("--id is a member's id: lower-case letters, digits and dashes, not %q", id)
	}
	return id, nil
}
