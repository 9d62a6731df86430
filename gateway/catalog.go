package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/journal"
	"github.com/soukhq/souk/machine"
)

// The catalog's buckets in its journal.
const (
	bucketApp    = "app"
	bucketSecret = "secret"
	bucketKey    = "idempotency"
)

// MaxApps bounds the apps of one catalog.
const MaxApps = 100_000

// App is an app as the Machines API tells it.
type App struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	NumericID    int32        `json:"internal_numeric_id"`
	Network      string       `json:"network"`
	Status       string       `json:"status"` // pending without machines, else deployed; deleting while it goes
	MachineCount int          `json:"machine_count"`
	VolumeCount  int          `json:"volume_count"`
	Organization Organization `json:"organization"`
	CnameTarget  string       `json:"cname_target"`
	AppRole      string       `json:"app_role"`
	CreatedAt    time.Time    `json:"created_at"`
}

// Organization owns apps. souk keeps its name with the app and nothing else of it.
type Organization struct {
	Name      string `json:"name"`
	Slug      string `json:"slug"`
	NumericID int32  `json:"internal_numeric_id"`
}

// appRow is an app as it is stored.
type appRow struct {
	ID         string    `json:"id"`
	Number     int32     `json:"number"`
	Name       string    `json:"name"`
	Org        string    `json:"org"`
	Network    string    `json:"network,omitempty"`
	Role       string    `json:"role,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	Deleting   bool      `json:"deleting,omitempty"`
	Disconnect string    `json:"disconnect,omitempty"` // "": never
	Policy     string    `json:"policy,omitempty"`     // of placement, by name; "": the default
	Secrets    uint64    `json:"secrets,omitempty"`    // version of the app's secrets: counts their changes

	Namespace string `json:"namespace,omitempty"` // "": the default one

	Budget *machine.EvictionBudget `json:"eviction_budget,omitempty"` // of its machines that name none; nil: the default
}

func (a appRow) app() App {
	status := "pending"
	if a.Deleting {
		status = "deleting"
	}
	return App{
		ID: a.ID, Name: a.Name, NumericID: a.Number, Network: a.Network, AppRole: a.Role, Status: status, CreatedAt: a.CreatedAt,
		Organization: Organization{Name: a.Org, Slug: a.Org, NumericID: 1},
	}
}

// Catalog keeps what a gateway knows and no worker does: apps, their secrets (sealed), and idempotency keys. Reads come
// from memory; a change is in the journal before it is seen. Its methods may be called from many goroutines.
type Catalog struct {
	write   sync.Mutex   // held over a change from its first look to its commit; who holds it may read without mu
	mu      sync.RWMutex // held only while the maps are read or written, never over a commit: reads do not wait for the disk
	journal journal.Journal
	seal    sealer
	apps    map[string]appRow
	secrets map[string]map[string]secretRow // app -> name
	keys    map[string]keyRow               // app/key
	swept   time.Time
	lastApp int32

	policies policies
	quotas   quotas
	sharing  *Sharing
	failed   chan struct{} // closed when broken is set
	broken   error         // of a failed commit: what is on disk is unknown, so nothing more is written
}

// OpenCatalog reads a catalog from its journal, which is its own. keyFile holds the key that secrets are sealed with; it
// is made when there are no secrets yet, and refused when others may read it.
func OpenCatalog(j journal.Journal, keyFile string) (*Catalog, error) {
	c := &Catalog{journal: j, failed: make(chan struct{}), apps: map[string]appRow{}, secrets: map[string]map[string]secretRow{}, keys: map[string]keyRow{}, policies: newPolicies()}
	if err := j.Load(c.load); err != nil {
		return nil, err
	}
	c.compilePolicies()
	seal, err := openSealer(keyFile, len(c.secrets) == 0)
	if err != nil {
		return nil, err
	}
	c.seal = seal
	return c, nil
}

func (c *Catalog) load(r fsm.Record) error {
	var err error
	switch r.Bucket {
	case bucketApp:
		var a appRow
		if err = json.Unmarshal(r.Value, &a); err == nil {
			c.apps[r.Key] = a
			c.lastApp = max(c.lastApp, a.Number)
		}
	case bucketSecret:
		var s secretRow
		app, name, _ := strings.Cut(r.Key, "/")
		if err = json.Unmarshal(r.Value, &s); err == nil {
			c.putSecret(app, name, s)
		}
	case bucketKey:
		var k keyRow
		if err = json.Unmarshal(r.Value, &k); err == nil {
			c.keys[r.Key] = k
		}
	case bucketPolicy:
		err = c.loadPolicy(r)
	case bucketNamespace, bucketPrice:
		err = c.quotas.loadQuota(r)
	case bucketSetting:
		err = json.Unmarshal(r.Value, &c.policies.choice)
	default:
		err = fmt.Errorf("an unknown bucket")
	}
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "catalog", "the catalog's record %s/%s cannot be read; start the version of souk that wrote it", r.Bucket, r.Key)
	}
	return nil
}

// commit writes records, has apply change the maps, and tells the other gateways. The caller holds write.
func (c *Catalog) commit(apply func(), rs ...fsm.Record) error {
	err := c.commitOwn(apply, rs...)
	if err == nil {
		for _, r := range rs {
			c.tell(r)
		}
	}
	return err
}

// Failed is closed when a commit has failed. What is on disk is unknown then: the process is to end, and to be started again.
func (c *Catalog) Failed() <-chan struct{} { return c.failed }

// commitOwn is commit for what the others know.
func (c *Catalog) commitOwn(apply func(), rs ...fsm.Record) error {
	if c.broken != nil {
		return c.broken
	}
	if err := c.journal.Commit(rs); err != nil {
		c.broken = fault.Wrap(err, fault.Unavailable, "catalog", "the catalog could not be written, so nothing more is changed until souk is started again")
		close(c.failed)
		return c.broken
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	apply()
	return nil
}

func record(bucket, key string, row any) fsm.Record {
	raw, err := json.Marshal(row)
	if err != nil {
		panic("gateway: a catalog row is not JSON: " + err.Error())
	}
	return fsm.Record{Bucket: bucket, Key: key, Value: raw}
}

var appName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CreateApp enters an app. org "" is "personal".
func (c *Catalog) CreateApp(name, org, network, role string) (App, error) {
	if !appName.MatchString(name) {
		return App{}, fault.New(fault.Invalid, "app_name",
			"%q cannot be an app's name; use 1 to 63 lower-case letters, digits and dashes, with no dash at the ends", clip(name, 80))
	}
	if org == "" {
		org = "personal"
	}
	c.write.Lock()
	defer c.write.Unlock()
	if _, taken := c.apps[name]; taken {
		return App{}, fault.New(fault.Conflict, "app_name_taken", "Validation failed: Name has already been taken: there is an app %s; choose another name", name)
	}
	if len(c.apps) >= MaxApps {
		return App{}, &fault.Error{Kind: fault.Exhausted, Code: "too_many_apps", Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("there are %d apps, the most a catalog keeps; delete some", len(c.apps))}
	}
	a := appRow{ID: ulid.Make().String(), Number: c.lastApp + 1, Name: name, Org: org, Network: network, Role: role, CreatedAt: time.Now().UTC()}
	err := c.commit(func() { c.apps[name], c.lastApp = a, a.Number }, record(bucketApp, name, a))
	return a.app(), err
}

// App gives one app, without its counts.
func (c *Catalog) App(name string) (App, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, ok := c.apps[name]
	if !ok {
		return App{}, noApp()
	}
	return a.app(), nil
}

func noApp() error { return fault.New(fault.NotFound, "app_not_found", "app not found") }

// Apps lists the apps in the order of their names.
func (c *Catalog) Apps() []App {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]App, 0, len(c.apps))
	for _, a := range c.apps {
		out = append(out, a.app())
	}
	slices.SortFunc(out, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// MarkDeleting makes an app refuse everything new. It is the first step of a deletion, and lasts over a crash.
func (c *Catalog) MarkDeleting(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	a, ok := c.apps[name]
	if !ok {
		return noApp()
	}
	if a.Deleting {
		return nil
	}
	a.Deleting = true
	return c.commit(func() { c.apps[name] = a }, record(bucketApp, name, a))
}

// DeleteApp takes an app out, with its secrets and keys.
func (c *Catalog) DeleteApp(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	if _, ok := c.apps[name]; !ok {
		return noApp()
	}
	batch := []fsm.Record{{Bucket: bucketApp, Key: name}}
	for s := range maps.Keys(c.secrets[name]) {
		batch = append(batch, fsm.Record{Bucket: bucketSecret, Key: name + "/" + s})
	}
	var keys []string
	for k := range maps.Keys(c.keys) {
		if strings.HasPrefix(k, name+"/") {
			keys = append(keys, k)
			batch = append(batch, fsm.Record{Bucket: bucketKey, Key: k})
		}
	}
	return c.commit(func() {
		delete(c.apps, name)
		delete(c.secrets, name)
		for _, k := range keys {
			delete(c.keys, k)
		}
	}, batch...)
}

// Close closes the journal.
func (c *Catalog) Close() error { return c.journal.Close() }
