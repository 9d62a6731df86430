package cli

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/soukhq/souk/fault"
)

// Context is a souk that the user has a name for.
type Context struct {
	Addr      string `toml:"addr" json:"addr"`                                 // as --addr
	Token     string `toml:"token,omitempty" json:"-"`                         // the token, or
	TokenFile string `toml:"token-file,omitempty" json:"token_file,omitempty"` // the file of the token
	Roots     string `toml:"roots,omitempty,multiline" json:"roots,omitempty"` // PEM; "": the system's
}

// Contexts are the souks that the user has names for, as their file has them.
type Contexts struct {
	Current  string             `toml:"current,omitempty"` // "": the souk of this host
	Contexts map[string]Context `toml:"contexts,omitempty"`
}

// Names lists the contexts in order.
func (all Contexts) Names() []string { return slices.Sorted(maps.Keys(all.Contexts)) }

// contextName matches what may name a context.
var contextName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`) })

// CheckContextName refuses what cannot name a context of the user's.
func CheckContextName(name string) error {
	if !contextName().MatchString(name) {
		return Usagef("%q names no context: take letters, digits, dots and dashes, 63 at most", name)
	}
	if name == AgentContext || name == DevContext {
		return Usagef("the context %s is the souk of this host; take another name", name)
	}
	return nil
}

// ContextsFile returns the path of the user's contexts.
func (c *Env) ContextsFile() (string, error) {
	if d := c.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "souk", "contexts.toml"), nil
	}
	home := c.Getenv("HOME")
	if home == "" {
		return "", fault.New(fault.Invalid, codeHome,
			"neither XDG_CONFIG_HOME nor HOME is set, so there is no place for contexts")
	}
	return filepath.Join(home, ".config", "souk", "contexts.toml"), nil
}

// Contexts reads the user's contexts. There are none without a file, or a place for one. A file with tokens that other
// users may read is refused: Denied.
func (c *Env) Contexts() (all Contexts, err error) {
	file, err := c.ContextsFile()
	if err != nil {
		return all, nil //nolint:nilerr // who has no home has no contexts
	}
	st, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return all, fault.Wrap(err, fault.Invalid, CodeContext, "the contexts in %s cannot be read", file)
	}
	if err := toml.NewDecoder(bytes.NewReader(raw)).DisallowUnknownFields().Decode(&all); err != nil {
		return all, fault.Wrap(err, fault.Invalid, CodeContext, "the contexts in %s cannot be read", file)
	}
	secret := func(k Context) bool { return k.Token != "" }
	if st.Mode().Perm()&0o077 != 0 && slices.ContainsFunc(slices.Collect(maps.Values(all.Contexts)), secret) {
		return all, fault.New(fault.Denied, CodeContext, "others can read the tokens in %s: chmod 600 %s", file, file)
	}
	return all, nil
}

// SaveContexts writes the user's contexts.
func (c *Env) SaveContexts(all Contexts) error {
	file, err := c.ContextsFile()
	if err != nil {
		return err
	}
	raw, err := toml.Marshal(all)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return fault.Wrap(err, fault.Invalid, CodeContext, "the contexts cannot be written to %s", file)
	}
	return WriteWhole(file, string(raw), 0o600)
}

// named returns the souk of a context.
func (c *Env) named(all Contexts, name string) (target, error) {
	for _, h := range c.Homes() {
		if h.Name == name {
			return h.target(c.Getenv("SOUK_TOKEN")), nil
		}
	}
	k, there := all.Contexts[name]
	if !there {
		return target{}, c.NoContext(all, name)
	}
	return c.targetOf(name, k)
}

// NoContext is the error of a name that no context has.
func (c *Env) NoContext(all Contexts, name string) error {
	return fault.New(fault.NotFound, CodeContext, "there is no context %q; there are %s", name,
		strings.Join(append([]string{AgentContext, DevContext}, all.Names()...), ", "))
}

func (c *Env) targetOf(name string, k Context) (target, error) {
	token := k.Token
	if k.TokenFile != "" {
		var err error
		if token, err = ReadLine(k.TokenFile); err != nil {
			return target{}, fault.Wrap(err, fault.Denied, fault.CodeToken,
				"the token of context %s cannot be read", name)
		}
	}
	token = cmp.Or(token, c.Getenv("SOUK_TOKEN"))
	t := target{name: name}
	for _, addr := range addresses(k.Addr) {
		t.doors = append(t.doors, door{addr: addr, token: cmp.Or(token, c.tokenOf(addr)), roots: []byte(k.Roots)})
		t.learn = t.learn || strings.HasPrefix(addr, "https://")
	}
	if len(t.doors) == 0 {
		return t, Usagef("the context %s has no address; write HOST:PORT, https://HOST or unix:PATH", name)
	}
	if t.learn {
		t.addLearned(c.learnedOf(name), token)
	}
	return t, nil
}
