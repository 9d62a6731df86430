package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/silence"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/store/journal"
)

// Bounds of connections to souk. They also end a followed log once its host is gone.
const (
	dialTime   = 10 * time.Second
	silentTime = 8 * time.Second // the host counts as gone after this silence
)

// rootsDir is the directory of a member that root runs, as its unit does.
const rootsDir = "/var/lib/souk"

// AgentDir returns the directory of a member's state.
func (c *Env) AgentDir(given string) (string, error) {
	if given == "" && os.Geteuid() == 0 {
		return rootsDir, nil
	}
	dir, err := c.DevDir(given)
	if given == "" && err == nil {
		dir = filepath.Join(filepath.Dir(dir), "agent")
	}
	return dir, err
}

// SocketFile is, below its directory, the socket of a souk for the clients of its host.
const SocketFile = "souk.sock"

// UsersSocketFile is, below its directory, the socket of a souk of root for the users of its host, whom the kernel names.
const UsersSocketFile = "users.sock"

// Client makes the client for the chosen souk: --addr, SOUK_ADDR, the context that is given or used, or the one that
// runs on this host.
func (c *Env) Client() (*client.Client, error) {
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	return c.clientOf(t)
}

func (c *Env) clientOf(t target) (*client.Client, error) {
	doors := make([]client.Door, len(t.doors))
	for i, d := range t.doors {
		conns, err := d.conns(t.name)
		if err != nil {
			return nil, err
		}
		doors[i] = client.Door{Addr: d.addr, Token: d.token, Conns: conns}
	}
	if len(doors) == 1 {
		one := doors[0]
		cl := client.WithHTTP(one.Addr, one.Token, &http.Client{Transport: one.Conns})
		return c.learning(t, cl.OnMissing(c.noteMissing)), nil
	}
	return c.learning(t, client.Several(doors).OnMissing(c.noteMissing)), nil
}

// target is a souk to talk to, through one or several doors that answer for each other.
type target struct {
	name  string // its context's name; "": none
	doors []door // at least one
	known string // the mark of the last learned list of doors
	learn bool   // keep new lists with the context
}

// door is one way to a souk.
type door struct {
	addr  string // HOST:PORT, a URL, or unix:PATH
	token string // "": the server will say that it is missing
	roots []byte // PEM roots for its certificate; none: the system's
	also  []byte // an additional root
}

// conns returns the transport for a door; context names the context in errors about roots.
func (d door) conns(context string) (http.RoundTripper, error) {
	if err := checkAddr(d.addr); err != nil {
		return nil, err
	}
	conns := client.Transport(d.addr)
	if conns.DialContext == nil { // not a Unix socket
		conns.DialContext = silence.New(dialTime, silentTime).Dial
	}
	if d.token != "" && !strings.HasPrefix(d.addr, "https:") && !strings.HasPrefix(d.addr, "unix:") {
		conns.Proxy, conns.DialContext = nil, proven(d.token, conns.DialContext)
	}
	if len(d.roots)+len(d.also) == 0 {
		return conns, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil || len(d.roots) > 0 {
		pool = x509.NewCertPool()
	}
	if len(d.roots) > 0 && !pool.AppendCertsFromPEM(d.roots) {
		return nil, fault.New(fault.Invalid, CodeContext, "the roots of context %s are no PEM certificates", context)
	}
	pool.AppendCertsFromPEM(d.also) // on a bad PEM the door is simply not trusted
	conns.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return conns, nil
}

// addresses returns the addresses of a list that is separated by commas, each once.
func addresses(list string) (out []string) {
	for addr := range strings.SplitSeq(list, ",") {
		if addr = strings.TrimSpace(addr); addr != "" && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// target finds the chosen souk.
func (c *Env) target() (t target, err error) {
	if list := cmp.Or(c.addr, c.Getenv("SOUK_ADDR")); list != "" {
		for _, addr := range addresses(list) {
			t.doors = append(t.doors, door{addr: addr, token: cmp.Or(c.Getenv("SOUK_TOKEN"), c.tokenOf(addr))})
		}
		if len(t.doors) == 0 {
			return t, Usagef("%q names no address of a souk; write HOST:PORT, https://HOST or unix:PATH", list)
		}
		return t, nil
	}
	all, err := c.Contexts()
	if err != nil {
		return target{}, err
	}
	if name := cmp.Or(c.context, c.Getenv("SOUK_CONTEXT"), all.Current); name != "" {
		return c.named(all, name)
	}
	return c.here()
}

// tokenOf returns the token of the souk of this host with an address. The token is never sent to another souk.
func (c *Env) tokenOf(addr string) string {
	if path, socket := strings.CutPrefix(addr, "unix:"); socket {
		return tokenIn(filepath.Dir(strings.TrimPrefix(path, "//")))
	}
	for _, h := range c.Homes() {
		if at, err := ReadLine(filepath.Join(h.Dir, "addr")); err == nil && at == addr {
			return tokenIn(h.Dir)
		}
	}
	return ""
}

// tokenIn reads the token in a souk's directory; "": it may not be read; the server will say that it is missing.
func tokenIn(dir string) string {
	token, err := ReadLine(filepath.Join(dir, "token"))
	if err != nil {
		return ""
	}
	return token
}

// Home is where a souk of this host keeps its state unless told otherwise.
type Home struct {
	Name, Dir string
	Socket    string // SocketFile, or UsersSocketFile of another user's souk
}

func (h Home) socket() string { return filepath.Join(h.Dir, h.Socket) }

// Addr returns the address of its socket.
func (h Home) Addr() string { return "unix:" + h.socket() }

// The built-in contexts: the souks of this host.
const (
	AgentContext = "agent"
	DevContext   = "dev"
	HostContext  = "host" // the agent of root, for the other users of the host
)

// Homes lists where souks of this host may be.
func (c *Env) Homes() (out []Home) {
	if dir, err := c.AgentDir(""); err == nil {
		out = append(out, Home{AgentContext, dir, SocketFile})
	}
	if dir, err := c.DevDir(""); err == nil {
		out = append(out, Home{DevContext, dir, SocketFile})
	}
	if os.Geteuid() != 0 {
		out = append(out, Home{HostContext, rootsDir, UsersSocketFile})
	}
	return out
}

// ownApp returns the app of the user of this host at the socket for users; "": another souk or socket is asked.
func (c *Env) ownApp() string {
	c.noting.Lock()
	if c.own == nil {
		c.own = sync.OnceValue(c.findOwnApp)
	}
	c.noting.Unlock()
	return c.own()
}

func (c *Env) findOwnApp() string {
	if os.Geteuid() == 0 || !c.asksUsersDoor() {
		return ""
	}
	a, err := unixuser.Numbered(context.Background(), uint32(os.Geteuid())) //nolint:gosec // a user's number
	if err != nil {
		return "" // that souk will say so
	}
	return api.AppOfUser(a.UnixUser)
}

// asksUsersDoor reports whether the chosen souk is asked at its socket for users.
func (c *Env) asksUsersDoor() bool {
	if list := cmp.Or(c.addr, c.Getenv("SOUK_ADDR")); list != "" {
		return slices.ContainsFunc(addresses(list), func(addr string) bool {
			return strings.HasPrefix(addr, "unix:") && filepath.Base(addr) == UsersSocketFile
		})
	}
	all, err := c.Contexts()
	if err != nil {
		return false
	}
	if name := cmp.Or(c.context, c.Getenv("SOUK_CONTEXT"), all.Current); name != "" {
		return name == HostContext
	}
	homes := c.Homes()
	at := slices.IndexFunc(homes, Home.answers)
	return at >= 0 && homes[at].Socket == UsersSocketFile
}

func (h Home) target(token string) target {
	return target{name: h.Name, doors: []door{{addr: h.Addr(), token: cmp.Or(token, tokenIn(h.Dir))}}}
}

// answers reports whether a souk of this host listens.
func (h Home) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := unixsock.Dial(ctx, h.socket())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// left reports whether a killed souk has left its socket behind; one that ended removes it.
func (h Home) left() bool {
	_, err := os.Lstat(h.socket())
	return err == nil && !h.answers()
}

// here returns the souk that runs on this host.
func (c *Env) here() (target, error) {
	h, err := c.choose(c.Homes())
	if err != nil {
		return target{}, err
	}
	return h.target(c.Getenv("SOUK_TOKEN")), nil
}

// choose returns the souk of this host to use: the first that answers, so an agent before a souk dev. If another could
// be meant, it prints a note.
func (c *Env) choose(homes []Home) (Home, error) {
	at := slices.IndexFunc(homes, Home.answers)
	if at < 0 {
		return Home{}, noneHere(homes)
	}
	asked, before, after := homes[at], homes[:at], homes[at+1:]
	if i := slices.IndexFunc(before, Home.left); i >= 0 {
		c.note(fmt.Sprintf("the %s of %s was killed and does not run, so the %s of %s is asked", before[i].Name,
			before[i].Dir, asked.Name, asked.Dir), nil)
	}
	if i := slices.IndexFunc(after, Home.answers); i >= 0 {
		c.note(fmt.Sprintf("two souks run on this host, and the %s of %s is asked; --context %s asks the other, %s",
			asked.Name, asked.Dir, after[i].Name, after[i].Dir), nil)
	}
	return asked, nil
}

// noneHere is the error where no souk of this user runs.
func noneHere(homes []Home) error {
	var dirs []string
	for _, h := range homes {
		if h.Name != HostContext {
			dirs = append(dirs, h.Dir)
		}
	}
	if _, err := os.Lstat(rootsDir); err == nil && os.Geteuid() != 0 {
		return fault.New(fault.Unavailable, CodeNoSouk,
			"no souk of yours runs on this host, in %s, and the one in %s belongs to root and serves no other "+
				"users (--unix-users): ask it as root, or with --addr and a token in SOUK_TOKEN, or start your own "+
				"with \"souk dev\"",
			strings.Join(dirs, " or "), rootsDir)
	}
	return fault.New(fault.Unavailable, CodeNoSouk,
		"no souk runs on this host, in %s: start one with \"souk dev\", or name another with --addr, SOUK_ADDR or "+
			"souk context", strings.Join(dirs, " or "))
}

// noteMissing says on stderr, once for each worker, that the output lacks its data.
func (c *Env) noteMissing(workers []string) {
	c.noting.Lock()
	defer c.noting.Unlock()
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
	text := " does not answer: its rows are old or missing"
	if len(workers) > 1 {
		text = " do not answer: their rows are old or missing"
	}
	c.note(strings.Map(Printable, strings.Join(workers, ", "))+text, workers)
}

// note prints a remark on stderr, besides a command's answer.
func (c *Env) note(text string, missing []string) {
	if c.JSON {
		c.JSONLine(c.Err, NoteLine{Note: text, Missing: missing})
		return
	}
	fmt.Fprintf(c.Err, "souk: %s\n", text)
}

// NoteLine is a remark on stderr with --json, besides a command's answer.
type NoteLine struct {
	Note    string   `json:"note"`
	Missing []string `json:"missing,omitempty"` // workers that could not be asked
}

// checkAddr refuses an address to which the token would go in clear over a network.
func checkAddr(addr string) error {
	if strings.HasPrefix(addr, "unix:") {
		return nil
	}
	given := addr
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Usagef("%q is no address of a souk; write HOST:PORT, https://HOST or unix:PATH", given)
	}
	if given != addr && u.Port() == "" {
		return Usagef("%q is no address of a souk, for it has no port; write HOST:PORT, https://HOST or unix:PATH",
			given)
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
			return "", fault.Wrap(err, fault.Invalid, fault.CodeDir, "%q is no directory", given)
		}
		return abs, nil
	}
	if d := c.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "souk", "dev"), nil
	}
	home := c.Getenv("HOME")
	if home == "" {
		return "", fault.New(fault.Invalid, codeHome,
			"neither XDG_STATE_HOME nor HOME is set, so there is no place for souk's state; give --dir")
	}
	return filepath.Join(home, ".local", "state", "souk", "dev"), nil
}

// WhoAmI returns the name of the user, for records of who did something.
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

// WriteWhole writes a file atomically, even across a crash.
func WriteWhole(file, text string, mode fs.FileMode) error {
	if err := journal.WriteWhole(file, []byte(text), mode); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeWrite, "%s cannot be written", file)
	}
	return nil
}
