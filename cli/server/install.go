package server

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
)

// unitText is the unit as packages have it.
//
//go:embed souk.service
var unitText string

// unitName is the unit's name, its file and its service.
const unitName = "souk.service"

// unitExec is the unit's ExecStart line, to be replaced for another binary or settings file.
const unitExec = "ExecStart=/usr/local/bin/souk agent --config " + settingsFile + "\n"

// unitFlags say where the unit is, and what it starts.
type unitFlags struct {
	root, dir string
	exec      string
	config    string
	print     bool
	force     bool
}

func (o *unitFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.root, "root", "", "a directory that stands for /, for those who make packages and images")
	f.StringVar(&o.dir, "unit-dir", "/etc/systemd/system", "where units are")
	f.StringVar(&o.exec, "exec", "", "the souk that the unit starts (default: this one)")
	f.StringVar(&o.config, "config", settingsFile, "the settings that it is given")
	f.BoolVar(&o.force, "force", false, "also where the unit there is not as this souk would write it")
}

// file returns the unit's path, including --root.
func (o *unitFlags) file() string { return o.below(filepath.Join(o.dir, unitName)) }

// below returns a path within --root.
func (o *unitFlags) below(path string) string { return filepath.Join(o.root, path) }

// text returns the unit for the chosen binary and settings.
func (o *unitFlags) text() (string, error) {
	exe := o.exec
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return "", fault.Wrap(err, fault.Unavailable, fault.CodeExec,
				"the path of the souk binary cannot be found; give --exec")
		}
		if strings.Contains(exe, "/go-build") {
			return "", fault.New(fault.Precondition, fault.CodeExec,
				"this souk is %s, which \"go run\" removes when it ends: "+
					"run \"go install ./cmd/souk\" and then that one, or give --exec", exe)
		}
	}
	for flag, path := range map[string]string{"--exec": exe, "--config": o.config} {
		if !filepath.IsAbs(path) {
			return "", cli.Usagef("%s is an absolute path, for systemd takes no other, not %q", flag, path)
		}
		if strings.ContainsAny(path, " \t\n\"'\\%$;") {
			return "", cli.Usagef("%s is %q: in a unit a path has no spaces, quotes, %%, $ or semicolons", flag, path)
		}
	}
	if st, err := os.Stat(o.below(exe)); o.root == "" && (err != nil || st.Mode()&0o111 == 0 || st.IsDir()) {
		return "", cli.Usagef("--exec is %s, and there is no program: name the souk that the unit is to start", exe)
	}
	return strings.Replace(unitText, unitExec, "ExecStart="+exe+" agent --config "+o.config+"\n", 1), nil
}

// look returns the existing unit; nil: none.
func (o *unitFlags) look() ([]byte, error) {
	is, err := os.ReadFile(o.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Denied, codeUnit, "the unit %s cannot be read", o.file())
	}
	return is, nil
}

func cmdAgentInstall(c *cli.Env) *cobra.Command {
	o := new(unitFlags)
	cmd := &cobra.Command{Use: "install", Short: "Write the systemd unit that runs the agent as a service",
		Long: `Write the unit of the agent, souk.service, with the path of this souk, to where systemd looks for it.
Nothing is started: what to type next is printed. A unit that somebody has changed is left alone without --force; changes
of your own are better in a drop-in, which stays (systemctl edit souk).

The agent tells systemd when it is ready (Type=notify). To stop or restart the service ends no machine.`,
		Example: "  souk agent install\n  souk agent install --print\n  souk agent install --root ./pkg --unit-dir " +
			"/usr/lib/systemd/system --exec /usr/bin/souk", Args: cli.Args(0, 0, "no argument")}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.print, "print", false, "print the unit and write nothing")
	cmd.RunE = func(*cobra.Command, []string) error { return doInstall(c, o) }
	return cmd
}

func doInstall(c *cli.Env, o *unitFlags) error {
	text, err := o.text()
	if err != nil {
		return err
	}
	if o.print {
		fmt.Fprint(c.Out, text)
		return nil
	}
	file := o.file()
	is, err := o.look()
	if err != nil {
		return err
	}
	if is != nil && string(is) != text && !o.force {
		return fault.New(fault.Conflict, codeUnit,
			"%s is there already, and is not as this souk would write it: look at the difference with \"souk agent "+
				"install --print | diff %s -\", then say --force, or keep it", file, file)
	}
	if is == nil || string(is) != text {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fault.Wrap(err, fault.Denied, codeUnit, "%s cannot be made: be root, or give --unit-dir",
				filepath.Dir(file))
		}
		if err := cli.WriteWhole(file, text, 0o644); err != nil {
			return fault.Wrap(err, fault.Denied, codeUnit, "%s cannot be written: be root, or give --unit-dir", file)
		}
	}
	if c.JSON {
		c.Say("install", file, "")
		return nil
	}
	fmt.Fprintf(c.Out, "the unit is %s\n", file)
	if !exists(o.below(o.config)) {
		fmt.Fprintf(c.Out, "  first  souk init or souk join: the settings %s are not there yet\n", o.config)
	}
	fmt.Fprint(c.Out, "  next   systemctl daemon-reload && systemctl enable --now souk\n")
	return nil
}

func cmdAgentUninstall(c *cli.Env) *cobra.Command {
	o := new(unitFlags)
	cmd := &cobra.Command{Use: "uninstall", Short: "Remove the agent's systemd unit; machines and state stay",
		Long: `Remove the unit that "souk agent install" wrote. The service is to be disabled before. Machines
that run go on running, and the member's directory and its settings stay.`,
		Example: "  systemctl disable --now souk && souk agent uninstall", Args: cli.Args(0, 0, "no argument")}
	o.add(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return doUninstall(c, o) }
	return cmd
}

func doUninstall(c *cli.Env, o *unitFlags) error {
	text, err := o.text()
	if err != nil {
		return err
	}
	file := o.file()
	is, err := o.look()
	wanted := filepath.Join(filepath.Dir(file), "multi-user.target.wants", unitName)
	switch {
	case err != nil:
		return err
	case is == nil:
		return fault.New(fault.NotFound, codeUnit, "there is no unit %s", file)
	case !bytes.Equal(is, []byte(text)) && !o.force:
		return fault.New(fault.Conflict, codeUnit,
			"%s is not as this souk would write it, so somebody has changed it or another souk wrote it; say --force "+
				"to remove it all the same", file)
	case exists(wanted) && !o.force:
		return fault.New(fault.Precondition, codeUnit,
			"the service is enabled: run \"systemctl disable --now souk\" first, or say --force")
	}
	if err := os.Remove(file); err != nil {
		return fault.Wrap(err, fault.Denied, codeUnit, "%s cannot be removed", file)
	}
	if c.JSON {
		c.Say("uninstall", file, "")
		return nil
	}
	fmt.Fprintf(c.Out, "%s is removed; machines that run go on, and the member's directory is as it was\n"+
		"  next  systemctl daemon-reload\n", file)
	return nil
}
