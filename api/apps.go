package api

import (
	"time"

	"github.com/soukhq/souk/machine"
)

// App is an app as the Machines API describes it.
type App struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	NumericID    int32        `json:"internal_numeric_id"`
	Network      string       `json:"network"`
	Status       string       `json:"status"` // pending without machines, else deployed; deleting during its deletion
	MachineCount int          `json:"machine_count"`
	VolumeCount  int          `json:"volume_count"`
	Organization Organization `json:"organization"`
	CnameTarget  string       `json:"cname_target"`
	AppRole      string       `json:"app_role"`
	CreatedAt    time.Time    `json:"created_at"`
}

// Organization owns apps. souk stores only its name, with the app.
type Organization struct {
	Name      string `json:"name"`
	Slug      string `json:"slug"`
	NumericID int32  `json:"internal_numeric_id"`
}

// NewApp is the request to create an app. Clients send name, the documentation of the Machines API says app_name.
type NewApp struct {
	Name             string `json:"name,omitempty"`
	AppName          string `json:"app_name,omitempty"`
	Org              string `json:"org_slug,omitempty"`
	Network          string `json:"network,omitempty"`
	Role             string `json:"app_role_id,omitempty"`
	EnableSubdomains bool   `json:"enable_subdomains,omitempty"` // accepted, without effect
}

// AppList lists apps.
type AppList struct {
	Total int   `json:"total_apps"`
	Apps  []App `json:"apps"`
}

// AppBudget is the eviction budget of an app, for machines whose launch names none.
type AppBudget struct {
	Budget  machine.EvictionBudget `json:"eviction_budget"`
	Default bool                   `json:"default,omitempty"` // it was not set for the app
}

// AppDisconnect says what happens to an app's machines on an unreachable worker: never, fast or fenced.
type AppDisconnect struct {
	Policy string `json:"policy"`
}

// AddressList lists the addresses of an app: souk assigns none.
type AddressList struct {
	IPs []string `json:"ips"`
}
