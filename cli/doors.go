package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// A context learns where the members of its cluster serve their API, and the roots of their certificates, from the member
// that it talks to (docs/decisions/0039-the-local-door.md). What it has learned is in a file of its own beside the
// contexts, which are the user's.

// learnTime bounds how long a finished command waits to learn of doors.
const learnTime = time.Second

// mostLearned bounds the learned doors that a context uses besides the user's own.
const mostLearned = 16

// learnedFile returns the file of a context's learned doors; "": none.
func (c *Env) learnedFile(name string) string {
	file, err := c.ContextsFile()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(file), "doors", name+".json")
}

// learnedOf returns the doors that a context has learned. If the file is unreadable it returns none, and the next
// answer brings them again.
func (c *Env) learnedOf(name string) (list api.DoorList) {
	raw, err := os.ReadFile(c.learnedFile(name))
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return api.DoorList{}
	}
	return list
}

// LearnedDoors lists the addresses that a context has learned.
func (c *Env) LearnedDoors(name string) (addrs []string) {
	for _, d := range c.learnedOf(name).Doors {
		addrs = append(addrs, d.Addr)
	}
	return addrs
}

// ForgetDoors removes what a context has learned.
func (c *Env) ForgetDoors(name string) { os.Remove(c.learnedFile(name)) }

// LearnDoors stores a souk's list of doors with a context. On a failure the next command tries again.
func (c *Env) LearnDoors(ctx context.Context, name string, cl *client.Client) {
	list, err := cl.Doors(ctx)
	raw, odd := json.Marshal(list)
	file := c.learnedFile(name)
	if err != nil || odd != nil || file == "" || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	_ = WriteWhole(file, string(raw)+"\n", 0o600)
}

// TryContext asks each address of a new context for its version, and learns the other doors' roots from one that
// answers. It returns the version. If one of several does not answer, it only prints a note.
func (c *Env) TryContext(ctx context.Context, name string, k Context) (version string, err error) {
	open, wrong := addresses(k.Addr), map[string]error{}
	for before := 0; len(open) != before && len(open) > 0; { // a root learned from one may make others trusted
		t, err := c.targetOf(name, k)
		if err != nil {
			return "", err
		}
		before = len(open)
		open = slices.DeleteFunc(open, func(addr string) bool {
			at := slices.IndexFunc(t.doors, func(d door) bool { return d.addr == addr })
			told, err := c.tryDoor(ctx, t, t.doors[at])
			wrong[addr], version = err, cmp.Or(told, version)
			return err == nil
		})
	}
	if at := slices.IndexFunc(open, func(addr string) bool { return fault.Is(wrong[addr], fault.Denied) }); at > 0 {
		open[0], open[at] = open[at], open[0] // report a failed authentication rather than an unreachable door
	}
	for _, addr := range open {
		if err := wrong[addr]; version == "" || !fault.Is(err, fault.Unavailable) {
			c.ForgetDoors(name)
			return "", err
		}
		c.note(addr+" does not answer now: the others are asked", nil)
	}
	return version, nil
}

// tryDoor asks one door of a souk for its version, and learns of the other doors.
func (c *Env) tryDoor(ctx context.Context, t target, d door) (version string, err error) {
	cl, err := c.clientOf(target{name: t.name, doors: []door{d}})
	if err != nil {
		return "", err
	}
	info, err := cl.Version(ctx)
	if err == nil && t.learn && t.known == "" {
		c.LearnDoors(ctx, t.name, cl)
	}
	return info.Version, err
}

// addLearned adds learned doors, with the context's token. A door that the user also named is trusted by its member's
// root as well. It adds no door without TLS to a context with TLS.
func (t *target) addLearned(list api.DoorList, token string) {
	t.known = list.Mark
	for _, d := range list.Doors[:min(len(list.Doors), mostLearned)] {
		at := slices.IndexFunc(t.doors, func(x door) bool { return sameAddr(x.addr, d) })
		switch {
		case !strings.HasPrefix(d.Addr, "https://"):
		case at < 0:
			t.doors = append(t.doors, door{addr: d.Addr, token: token, roots: []byte(d.Root)})
		default:
			t.doors[at].also = []byte(d.Root)
		}
	}
}

func sameAddr(addr string, d cluster.Door) bool { return strings.TrimRight(addr, "/") == d.Addr }

// learning makes a context's client notice when the souk's list of doors has changed.
func (c *Env) learning(t target, cl *client.Client) *client.Client {
	if !t.learn {
		return cl
	}
	return cl.OnDoors(func(mark string) {
		c.noting.Lock()
		defer c.noting.Unlock()
		if mark != t.known {
			c.learn = func(ctx context.Context) { c.LearnDoors(ctx, t.name, cl) }
		}
	})
}

// learned fetches and stores a changed list of doors after a command.
func (c *Env) learned() {
	c.noting.Lock()
	learn := c.learn
	c.learn = nil
	c.noting.Unlock()
	if learn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), learnTime)
	defer cancel()
	learn(ctx)
}
