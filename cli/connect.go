package cli

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/journal"
)

// AgentDir returns the directory of a member's state.
func (c *Env) AgentDir(given string) (string, error) {
	if given == "" && os.Geteuid() == 0 {
		return "/var/lib/souk", nil
	}
	dir, err := c.DevDir(given)
	if given == "" && err == nil {
		dir = filepath.Join(filepath.Dir(dir), "agent")
	}
	return dir, err
}

// Client makes the client of the souk that is meant: --addr, SOUK_ADDR, or what souk dev wrote down.
//
// The token in the dev directory belongs to the souk of that directory: it is never sent to another address.
func (c *Env) Client() (*client.Client, error) {
	addr, token := c.addr, c.Getenv("SOUK_TOKEN")
	if addr == "" {
		addr = c.Getenv("SOUK_ADDR")
	}
	if addr == "" || token == "" {
		dir, err := c.DevDir("")
		if err != nil {
			return nil, err
		}
		devAddr, errAddr := ReadLine(filepath.Join(dir, "addr"))
		if addr == "" {
			if errAddr != nil {
				return nil, fault.New(fault.Unavailable, "no_souk",
					"no souk is known here: start one with \"souk dev\", or set SOUK_ADDR and SOUK_TOKEN")
			}
			addr = devAddr
		}
		if token == "" && errAddr == nil && addr == devAddr {
			token, _ = ReadLine(filepath.Join(dir, "token")) // without it the server says that a token is missing
		}
	}
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	return client.New(addr, token).OnMissing(c.noteMissing), nil
}

// noteMissing says on stderr, once for each worker, that what is shown lacks what it has.
func (c *Env) noteMissing(workers []string) {
	workers = slices.DeleteFunc(workers, func(id string) bool { return c.missing[id] })
	if len(workers) == 0 {
		return
	}
	if c.missing == nil {
		c.missing = map[string]bool{}
	}
	for _, id := range workers {
		c.missing[id] = true
	}
	text := strings.Map(Printable, strings.Join(workers, ", ")) + " could not be asked: of what is there, at most " +
		"what was last told is shown"
	if c.JSON {
		c.JSONLine(c.Err, NoteLine{Note: text, Missing: workers})
		return
	}
	fmt.Fprintf(c.Err, "souk: %s\n", text)
}

// NoteLine is what a command says in --json on stderr beside its answer.
type NoteLine struct {
	Note    string   `json:"note"`
	Missing []string `json:"missing,omitempty"` // workers that could not be asked
}

// checkAddr refuses to send the token in clear over a network.
func checkAddr(addr string) error {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Usagef("%q is no address of a souk; write HOST:PORT or https://HOST", addr)
	}
	if u.Scheme == "http" && !IsLoopback(u.Hostname()) {
		return Usagef("the token would travel to %s unencrypted; write https://%s, or tunnel to a loopback address",
			u.Host,
			u.Host)
	}
	return nil
}

// IsLoopback reports whether a host is reached without leaving this one.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// DevDir returns the directory of souk dev: the one given, else souk/dev below the user's state directory.
func (c *Env) DevDir(given string) (string, error) {
	if given != "" {
		abs, err := filepath.Abs(given)
		if err != nil {
			return "", fault.Wrap(err, fault.Invalid, "dir", "%q is no directory", given)
		}
		return abs, nil
	}
	if d := c.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "souk", "dev"), nil
	}
	home := c.Getenv("HOME")
	if home == "" {
		return "", fault.New(fault.Invalid, "home",
			"neither XDG_STATE_HOME nor HOME is set, so there is no place for souk's state; give --dir")
	}
	return filepath.Join(home, ".local", "state", "souk", "dev"), nil
}

// WhoAmI returns the name of the user, for those who ask later who did something.
func WhoAmI() string {
	if u, err := user.Current(); err == nil {
		return cmp.Or(u.Username, "somebody")
	}
	return "somebody"
}

// ReadLine returns a file's text without the space around it.
func ReadLine(path string) (string, error) {
	raw, err := os.ReadFile(path)
	return strings.TrimSpace(string(raw)), err
}

// WriteWhole writes a file so that it is there whole or not at all, also after a crash.
func WriteWhole(file, text string, mode fs.FileMode) error {
	if err := journal.WriteWhole(file, []byte(text), mode); err != nil {
		return fault.Wrap(err, fault.Unavailable, "write", "%s cannot be written", file)
	}
	return nil
}
