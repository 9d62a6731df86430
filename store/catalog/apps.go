package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// MaxApps bounds the apps of one catalog. Each is shared as an object of the registry, which also holds secrets,
// policies, namespaces and recent deletions.
const MaxApps = 50_000

// App is an app as stored.
type App struct {
	ID         string    `json:"id"`
	Number     int32     `json:"number"`
	Name       string    `json:"name"`
	Org        string    `json:"org"`
	Network    string    `json:"network,omitempty"`
	Role       string    `json:"role,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	Deleting   bool      `json:"deleting,omitempty"`
	Disconnect string    `json:"disconnect,omitempty"` // a disconnect policy; "": DisconnectNever
	Policy     string    `json:"policy,omitempty"`     // name of its placement policy; "": the default
	Secrets    uint64    `json:"secrets,omitempty"`    // version of the app's secrets: the number of their changes
	Namespace  string    `json:"namespace,omitempty"`  // "": the default one

	// of its machines without their own; nil: the default
	Budget *machine.EvictionBudget `json:"eviction_budget,omitempty"`
}

// Apps are the apps and their settings.
type Apps struct {
	*engine
	rows     *rows[App]
	last     int32 // the highest number seen or assigned here
	services *Services
}

func newApps(e *engine) *Apps {
	c := &Apps{engine: e, rows: newRows(bucketApp, func(key string, a App) error {
		if !machine.ValidLabel(a.Name) {
			return fault.New(fault.Invalid, fault.CodeAppName, "%q cannot be an app's name", fault.Clip(a.Name, 80))
		}
		return named(key, a.Name)
	})}
	c.rows.seen = func(_ string, a App) { c.last = max(c.last, a.Number) }
	e.add(bucketApp, bucket{table: c.rows, ofService: true, heard: func(app string) { c.services.appHeard(app) },
		removed: func(app string) []change {
			c.services.appRemoved(app)
			return e.ofApp(app)
		}})
	return c
}

// CreateApp adds an app. org "" is "personal".
func (c *Apps) CreateApp(name, org, network, role string) (App, error) {
	if err := checkName(name); err != nil {
		return App{}, err
	}
	if org == "" {
		org = "personal"
	}
	c.write.Lock()
	defer c.write.Unlock()
	if _, taken := c.rows.all[name]; taken {
		return App{}, fault.New(fault.Conflict, fault.CodeAppNameInUse,
			"Validation failed: Name has already been taken: there is an app %s; choose another name", name)
	}
	if len(c.rows.all) >= MaxApps {
		return App{}, &fault.Error{Kind: fault.Exhausted, Code: codeTooManyApps, Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("there are %d apps, the most a catalog keeps; delete some", len(c.rows.all))}
	}
	a := App{ID: ulid.Make().String(), Number: c.last + 1, Name: name, Org: org, Network: network, Role: role,
		CreatedAt: time.Now().UTC()}
	c.services.forgetOrphan(name)
	return a, c.commit(c.rows.put(name, a))
}

// checkName refuses an invalid name of an app.
func checkName(name string) error {
	if machine.ValidLabel(name) {
		return nil
	}
	return fault.New(fault.Invalid, fault.CodeAppName,
		"%q cannot be an app's name; use 1 to 63 lower-case letters, digits and dashes, with no dash at the ends",
		fault.Clip(name, 80))
}

// App returns one app.
func (c *Apps) App(name string) (App, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.rows.all[name]
	if !there {
		return App{}, NoApp()
	}
	return a, nil
}

// OpenApp returns an app that accepts new machines: one that is being deleted is not found.
func (c *Apps) OpenApp(name string) (App, error) {
	a, err := c.App(name)
	if err == nil && a.Deleting {
		err = NoApp()
	}
	return a, err
}

// NoApp returns the error for a missing app.
func NoApp() error { return fault.New(fault.NotFound, fault.CodeAppNotFound, "app not found") }

// AllApps returns the apps ordered by name.
func (c *Apps) AllApps() []App {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.rows.sorted()
}

// MarkDeleting makes an app refuse everything new. It is the first step of a deletion, and survives a crash.
func (c *Apps) MarkDeleting(name string) error {
	return c.updateApp(name, func(a *App) error {
		a.Deleting = true
		return nil
	})
}

// DeleteApp removes an app, with its secrets, keys and service.
func (c *Apps) DeleteApp(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	if _, there := c.rows.all[name]; !there {
		return NoApp()
	}
	return c.commit(append([]change{c.rows.remove(name)}, c.ofApp(name)...)...)
}

// updateApp changes one app. If set changes nothing, there is no commit.
func (c *Apps) updateApp(name string, set func(*App) error) error {
	c.write.Lock()
	defer c.write.Unlock()
	a, there := c.rows.all[name]
	if !there {
		return NoApp()
	}
	next := a
	if err := set(&next); err != nil || next == a {
		return err
	}
	return c.commit(c.rows.put(name, next))
}

// SetEvictionBudget sets the eviction budget of an app's machines that name none; nil is the default.
func (c *Apps) SetEvictionBudget(app string, b *machine.EvictionBudget) error {
	return c.updateApp(app, func(a *App) error {
		if why := b.Valid(); why != "" {
			return fault.New(fault.Invalid, codeEvictionBudget, "%s", why)
		}
		a.Budget = b
		return nil
	})
}

// What happens to an app's replicas on an unreachable worker, unless the release says it (release.Group.OnLost). The
// isolated worker keeps its machines running in any case. Machines that are no replicas are waited for.
const (
	DisconnectFast   = "fast"   // others are made once the worker is dead to this member: two may run
	DisconnectFenced = "fenced" // as fast, and what the machines write to refuses the older SOUK_FENCE
	DisconnectNever  = "never"  // the worker's machines are waited for. The default
)

// SetDisconnect sets an app's disconnect policy.
func (c *Apps) SetDisconnect(app, policy string) error {
	if !slices.Contains([]string{DisconnectFast, DisconnectFenced, DisconnectNever}, policy) {
		return fault.New(fault.Invalid, codeDisconnect, "there is no disconnect policy %q; use %s, %s or %s",
			fault.Clip(policy, 40), DisconnectFast, DisconnectFenced, DisconnectNever)
	}
	return c.updateApp(app, func(a *App) error {
		a.Disconnect = policy
		return nil
	})
}
