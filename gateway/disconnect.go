package gateway

import (
	"cmp"
	"net/http"

	"github.com/soukhq/souk/fault"
)

// What is to become of an app's machines on a worker that cannot be heard. It is data: the worker that is cut off goes on
// with them in any case, and nothing yet makes others in their place. Whoever does must go by it.
const (
	DisconnectFast   = "fast"   // others are made as soon as the worker is dead to this member: two may run for a while
	DisconnectFenced = "fenced" // as fast, and what they write to refuses the older SOUK_FENCE
	DisconnectNever  = "never"  // nothing is made: the worker's machines are waited for. The default
)

type disconnectBody struct {
	Policy string `json:"policy"`
}

// Disconnect gives an app's policy.
func (c *Catalog) Disconnect(app string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return cmp.Or(c.apps[app].Disconnect, DisconnectNever)
}

// SetDisconnect sets an app's policy.
func (c *Catalog) SetDisconnect(app, policy string) error {
	switch policy {
	case DisconnectFast, DisconnectFenced, DisconnectNever:
	default:
		return fault.New(fault.Invalid, "disconnect", "there is no disconnect policy %q; use %s, %s or %s", clip(policy, 40), DisconnectFast, DisconnectFenced, DisconnectNever)
	}
	c.write.Lock()
	defer c.write.Unlock()
	a, ok := c.apps[app]
	if !ok {
		return noApp()
	}
	a.Disconnect = policy
	return c.commit(func() { c.apps[app] = a }, record(bucketApp, app, a))
}

func (g *Gateway) getDisconnect(w http.ResponseWriter, r *http.Request) error {
	if _, err := g.catalog.App(r.PathValue("app")); err != nil {
		return err
	}
	answer(w, http.StatusOK, disconnectBody{g.catalog.Disconnect(r.PathValue("app"))})
	return nil
}

func (g *Gateway) setDisconnect(w http.ResponseWriter, r *http.Request) error {
	var in disconnectBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.SetDisconnect(r.PathValue("app"), in.Policy); err != nil {
		return err
	}
	return g.getDisconnect(w, r)
}
