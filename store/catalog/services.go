package catalog

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Service is what is wanted of an app that has a head, and who carries it. What it points to is shared: nobody may
// change it.
type Service struct {
	App App
	release.Service
	Why error // why the head or the release cannot be used: not here yet, or a newer souk wrote it
}

// Service returns the service of an app, and whether the app is there and has a head.
func (c *Catalog) Service(app string) (Service, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.all[app]
	v, wanted := c.heads.all[app]
	if !there || !wanted {
		return Service{}, false
	}
	s := Service{App: a, Service: c.standing(app, v.row)}
	if s.Head == nil {
		s.Why = c.unusableHead(app)
	} else if s.Release == nil {
		s.Why = c.noRelease(app, s.Head.Release)
	}
	return s, true
}

// standing returns the service of an app with head h, nil for none, as far as its releases are here. The caller holds mu, or
// write.
func (c *Catalog) standing(app string, h *release.Head) release.Service {
	s := release.Service{App: app, Head: h, Tenure: c.tenures.all[app]}
	if h == nil {
		return s
	}
	s.Release = c.releases.get(app + "/" + h.Release)
	if h.Before != nil {
		s.Before = c.releases.get(app + "/" + h.Before.Release)
	}
	return s
}

// Services returns the apps that have a head and are not being deleted, sorted.
func (c *Catalog) Services() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]string, 0, len(c.heads.all))
	for app := range c.heads.all {
		if a, there := c.apps.all[app]; there && !a.Deleting {
			out = append(out, app)
		}
	}
	slices.Sort(out)
	return out
}

// WantedImages lists the images of machines that services may need next: of the release that is wanted of each, and of the
// one that an undo returns to.
func (c *Catalog) WantedImages() []string {
	images := map[string]bool{}
	for _, app := range c.Services() {
		s, _ := c.Service(app)
		for _, r := range []*release.Release{s.Release, s.Before} {
			for i := 0; r != nil && i < len(r.Groups); i++ {
				images[r.Groups[i].Config.Image] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(images))
}

// SetTenure enters the newest term of a service's steward, for all members. It writes nothing where it stands so.
func (c *Catalog) SetTenure(app string, t release.Tenure) error {
	if err := t.Check(); err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	if a, there := c.apps.all[app]; !there || a.Deleting {
		return NoApp()
	}
	if old, there := c.tenures.all[app]; there && reflect.DeepEqual(old, t) {
		return nil
	}
	return c.commit(c.tenures.put(app, t))
}

func checkTenure(key string, t release.Tenure) error {
	if !machine.ValidLabel(key) {
		return named(key, appOf(key))
	}
	return t.Check()
}

// ServicesMoved returns a channel that is closed at the next change of a service or an app.
func (c *Catalog) ServicesMoved() <-chan struct{} { return c.moves.wait() }

// TakeMovedServices returns, sorted, the apps that have changed, or whose service has, since it was called last, and
// from the first call of ServicesMoved on. It is for one consumer.
func (c *Catalog) TakeMovedServices() []string { return c.moves.take() }

// moves notes which apps have changed, for one consumer. Before that has asked it notes nothing.
type moves struct {
	mu   sync.Mutex
	next chan struct{}
	apps map[string]struct{}
}

func (m *moves) wait() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next, m.apps = make(chan struct{}), map[string]struct{}{}
	}
	return m.next
}

func (m *moves) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Sorted(maps.Keys(m.apps))
	clear(m.apps)
	return out
}

func (m *moves) note(changes []change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		return
	}
	some := false
	for _, x := range changes {
		switch x.record.Bucket {
		case bucketApp, bucketRelease, bucketHead, bucketSteward, bucketFork:
			m.apps[appOf(x.record.Key)] = struct{}{}
			some = true
		}
	}
	if some {
		close(m.next)
		m.next = make(chan struct{})
	}
}

// serviceRemoval returns the changes that take out what is wanted of an app. The caller holds write.
func (c *Catalog) serviceRemoval(app string) (out []change) {
	if x, there := c.tenures.remove(app); there {
		out = append(out, x)
	}
	if x, there := c.heads.remove(app); there {
		out = append(out, x)
	}
	out = append(out, c.forks.removeApp(app)...)
	return append(out, c.releases.removeApp(app)...)
}

// hangs refuses a row of a service whose app is not here, yet or any more.
func (c *Catalog) hangs(bucket, key string) error {
	app := appOf(key)
	switch bucket {
	case bucketRelease, bucketHead, bucketSteward, bucketFork:
	default:
		return nil
	}
	if _, known := c.apps.all[app]; known {
		return nil
	}
	if bucket == bucketHead {
		c.orphan(app)
	}
	return fault.New(fault.NotFound, fault.CodeApp, "the row %s/%s is of an app that is not known here (yet)", bucket,
		fault.Clip(key, 80))
}

// orphan notes that members may have a head of an app that is not here.
func (c *Catalog) orphan(app string) {
	if len(c.orphans) < MaxApps {
		c.orphans[app] = true
	}
}

// forgetOrphan takes out, for all, the head that an app of this name had before it was deleted: a member that had not
// heard of that wrote it, and the new app must not begin with it. The caller holds write.
func (c *Catalog) forgetOrphan(app string) {
	if c.orphans[app] {
		delete(c.orphans, app)
		x, _ := c.heads.remove(app)
		c.tell(x.record)
	}
}
