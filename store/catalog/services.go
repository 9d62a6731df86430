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

// Service is the wanted state of an app that has a head, and its steward. What it points to is shared and must not be
// changed.
type Service struct {
	App App
	release.Service
	Why error // why the head or the release cannot be used: not here yet, or written by a newer souk
}

// Services stores the wanted state of services: heads, their releases, stewards, and overtaken heads.
type Services struct {
	*engine
	releases appRows[release.Release]
	heads    versionedRows[release.Head]
	tenures  *rows[release.Tenure]
	forks    appRows[release.Head]
	orphans  map[string]bool   // missing apps of which another member has sent a head
	restored map[string]string // apps of releases shared again although another member removed them, by key
	apps     *Apps
	secrets  *Secrets
}

func newServices(e *engine) *Services {
	c := &Services{engine: e,
		releases: newAppRows(bucketRelease, checkRelease),
		heads:    newVersionedRows(bucketHead, checkHead),
		tenures:  newRows(bucketSteward, checkTenure),
		forks:    newAppRows(bucketFork, checkFork),
		orphans:  map[string]bool{}, restored: map[string]string{}}
	c.releases.pack() // each service has several, and seldom needs one
	e.add(bucketSteward, bucket{table: c.tenures, ofService: true, ofApp: removeOne(c.tenures),
		refuse: func(key string) error { return c.needApp(bucketSteward, key) }})
	e.add(bucketHead, bucket{table: c.heads, ofService: true, ofApp: removeOne(c.heads), beside: c.forked,
		brings: 1, // for its steward's row
		refuse: c.refuseHead})
	e.add(bucketFork, bucket{table: c.forks, ofService: true, ofApp: c.forks.removeApp,
		refuse: func(key string) error { return c.needApp(bucketFork, key) }})
	e.add(bucketRelease, bucket{table: c.releases, ofService: true, ofApp: c.releases.removeApp, stays: c.needsRelease,
		refuse: func(key string) error { return c.needApp(bucketRelease, key) }})
	return c
}

// removeOne returns a function that removes an app's row from a table.
func removeOne(t table) func(app string) []change {
	return func(app string) []change {
		if !t.has(app) {
			return nil
		}
		return []change{t.remove(app)}
	}
}

// Service returns the service of an app, and whether the app exists and has a head.
func (c *Services) Service(app string) (Service, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.rows.all[app]
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

// standing returns the service of an app with head h, nil for none, as far as its releases are here. The caller holds
// mu or write.
func (c *Services) standing(app string, h *release.Head) release.Service {
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

// AllServices returns, sorted, the apps that have a head and are not being deleted.
func (c *Services) AllServices() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]string, 0, len(c.heads.all))
	for app := range c.heads.all {
		if a, there := c.apps.rows.all[app]; there && !a.Deleting {
			out = append(out, app)
		}
	}
	slices.Sort(out)
	return out
}

// WantedImages lists the images of machines that services may need next: of each wanted release, and of the one that
// an undo restores.
func (c *Services) WantedImages() []string {
	images := map[string]bool{}
	for _, app := range c.AllServices() {
		s, _ := c.Service(app)
		for _, r := range []*release.Release{s.Release, s.Before} {
			for i := 0; r != nil && i < len(r.Groups); i++ {
				images[r.Groups[i].Config.Image] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(images))
}

// SetTenure sets the newest term of a service's steward, for all members. It writes nothing if it is unchanged.
func (c *Services) SetTenure(app string, t release.Tenure) error {
	if err := t.Check(); err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	if a, there := c.apps.rows.all[app]; !there || a.Deleting {
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
func (c *Services) ServicesMoved() <-chan struct{} { return c.moves.wait() }

// TakeMovedServices returns, sorted, the apps that have changed, or whose service has, since its last call, beginning
// with the first call of ServicesMoved. It is for one consumer.
func (c *Services) TakeMovedServices() []string { return c.moves.take() }

// moves tracks which apps have changed, for one consumer. It tracks nothing before the consumer's first call.
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

func (m *moves) note(apps []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil || len(apps) == 0 {
		return
	}
	for _, app := range apps {
		m.apps[app] = struct{}{}
	}
	close(m.next)
	m.next = make(chan struct{})
}

// needApp refuses a row of a service whose app does not exist here.
func (c *Services) needApp(bucket, key string) error {
	if c.apps.rows.has(appOf(key)) {
		return nil
	}
	return fault.New(fault.NotFound, fault.CodeApp, "the row %s/%s is of an app that is not known here (yet)", bucket,
		fault.Clip(key, 80))
}

// refuseHead refuses a head whose app does not exist here, and remembers that other members have the head.
func (c *Services) refuseHead(key string) error {
	err := c.needApp(bucketHead, key)
	if err != nil {
		c.noteOrphan(appOf(key))
	}
	return err
}

// appHeard records that another member's app arrived: the member knew the app's head, or sent the app after it.
func (c *Services) appHeard(app string) { delete(c.orphans, app) }

// appRemoved is called before the removal of an app by another member, which may not know the app's head.
func (c *Services) appRemoved(app string) {
	c.forgetRestored(app)
	if c.heads.has(app) {
		c.noteOrphan(app)
	}
}

// noteOrphan records that members may have a head of an app that does not exist here.
func (c *Services) noteOrphan(app string) {
	if len(c.orphans) < MaxApps {
		c.orphans[app] = true
	}
}

// forgetOrphan deletes, on all members, the head of a deleted app with this name: a member wrote it before it heard of
// the deletion, and the new app must not start with it. The caller holds write.
func (c *Services) forgetOrphan(app string) {
	if c.orphans[app] {
		delete(c.orphans, app)
		c.tell(c.heads.remove(app).record)
	}
}
