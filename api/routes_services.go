package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// The operations on services for outside requests.
const (
	ListServices Op = "GET /v1/souk/services"
	ListRoutes   Op = "GET /v1/souk/routes"
	GetRequest   Op = "GET /v1/souk/requests/{request}"
)

func serviceRoutes() []Route {
	return []Route{
		{Op: ListServices, Verb: VerbList, Kind: KindService, Query: "app", Out: ServiceList{},
			About: "List the services of all apps, or of one, with the machines behind each."},
		{Op: ListRoutes, Verb: VerbList, Kind: KindService, Out: RouteList{},
			About: "List by which names and ports requests reach which app, as the member that answers leads them."},
		{Op: GetRequest, Verb: VerbGet, Kind: KindService, Out: ProxiedRequest{},
			About: "Tell what became of a recent request that machines were woken for, or that failed; the member " +
				"that took it knows."},
	}
}

// Doors are the addresses where a member's proxy accepts requests.
type Doors struct {
	HTTP    []string   `json:"http"`    // addresses
	HTTPS   []string   `json:"https"`   // addresses for HTTP over TLS
	Domains []string   `json:"domains"` // domains below which each app has a name
	Ports   []DoorPort `json:"ports"`   // further ports, of services
}

// DoorPort is a port that some service asks for.
type DoorPort struct {
	Port int    `json:"port"`
	App  string `json:"app"`            // the app that has it
	At   string `json:"at,omitempty"`   // where it is open; none: it could not be opened
	Shut bool   `json:"shut,omitempty"` // it could not be opened here
}

// ServiceList lists services.
type ServiceList struct {
	Doors    *Doors        `json:"doors,omitempty"` // of the member that answers; none: it has no proxy
	Services []ServiceInfo `json:"services"`
}

// ServiceInfo is one service of an app: machines that have the same port and answer to the same names.
type ServiceInfo struct {
	App      string   `json:"app"`
	Hosts    []string `json:"hosts"` // names that its requests are for; none: the app's own
	Port     int      `json:"port"`  // port inside its machines
	Protocol string   `json:"protocol"`
	Outside  []int    `json:"ports"` // outside ports other than HTTP's
	URLs     []string `json:"urls"`  // URLs at the answering member

	Autostart     bool    `json:"autostart"`
	Autostop      string  `json:"autostop"`                 // off, stop or suspend
	AutostopAfter float64 `json:"autostop_after,omitempty"` // seconds
	Min           int     `json:"min_machines_running"`
	Max           int     `json:"max_machines_running"` // 0: no bound
	CreateUpTo    int     `json:"create_up_to"`         // most machines to create for the load; 0: none
	Warm          int     `json:"warm"`                 // wanted sleeping spares; 0: none are made
	Concurrency   string  `json:"concurrency"`          // requests or connections
	Soft          int     `json:"soft_limit"`           // 0: none
	Hard          int     `json:"hard_limit"`           // 0: none

	Up       int              `json:"up"`
	Spares   int              `json:"spares"` // sleeping machines that a request can wake
	Load     int              `json:"load"`   // requests or connections under way at all members, as last reported
	Held     int              `json:"held"`   // requests that wait at the answering member
	Machines []ServiceMachine `json:"machines"`
	Groups   []string         `json:"groups,omitempty"` // its machines' groups in the app's service, sorted
}

// ServiceMachine is a machine behind a service.
type ServiceMachine struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	State    machine.State    `json:"state"`
	Worker   cluster.WorkerID `json:"worker"`
	Region   cluster.Region   `json:"region"`
	Load     int              `json:"load"`
	Failing  bool             `json:"failing,omitempty"`  // a check that requests depend on does not pass
	Cordoned bool             `json:"cordoned,omitempty"` // it gets no requests
	Unheard  bool             `json:"unheard,omitempty"`  // its worker is unreachable
}

// RouteList lists where a member's proxy routes requests.
type RouteList struct {
	Doors  Doors       `json:"doors"`
	Routes []RouteInfo `json:"routes"`
}

// RouteInfo is one name or port by which requests reach an app.
type RouteInfo struct {
	Host     string `json:"host,omitempty"` // a name, whole or below a domain; none: a port
	Port     int    `json:"port,omitempty"`
	URL      string `json:"url,omitempty"`
	App      string `json:"app"`
	Inside   int    `json:"inside"` // the port inside its machines
	Up       int    `json:"up"`
	Machines int    `json:"machines"`
	Spares   int    `json:"spares"`       // sleeping machines that a request can wake
	Warm     int    `json:"warm"`         // wanted sleeping spares
	Made     int    `json:"create_up_to"` // most machines to create for the load; 0: none
	// Groups are the groups of the app's service whose machines answer, sorted; several share the requests.
	Groups   []string `json:"groups,omitempty"`
	Shadowed []string `json:"shadowed,omitempty"` // other apps that claim the same, in vain
	Problem  string   `json:"problem,omitempty"`
	// Certificate is the problem with its name's certificate at the answering member; none: no known problem.
	Certificate *CertificateProblem `json:"certificate,omitempty"`
}

// CertificateProblem says why a member has no certificate for some names, or no newer one.
type CertificateProblem struct {
	Names  []string   `json:"names"`          // none: a file could not be read
	Source string     `json:"source"`         // file or acme
	File   string     `json:"file,omitempty"` // the user's file
	Why    string     `json:"why"`
	Again  *time.Time `json:"again,omitempty"` // not tried again before; after that, when a client asks for the name
	Ends   *time.Time `json:"ends,omitempty"`  // when its certificate expires; left out without one
}

// OtherApps is the metrics label for all apps that are not reported by name. No app can have that name.
const OtherApps = "_other"

// ProxyUsage counts the requests of a member's proxy.
type ProxyUsage struct {
	Requests uint64 `json:"requests"` // answered since it started
	Held     int    `json:"held"`     // requests that wait now
}

// ProxiedRequest is the proxy's record of one request, and a line of its access log. It has no query, no headers but
// Host, and no body: those may be secret.
type ProxiedRequest struct {
	Time    time.Time        `json:"time"`
	ID      string           `json:"request_id"`
	Client  string           `json:"client"`
	Proto   string           `json:"proto"`
	Method  string           `json:"method"`
	Host    string           `json:"host"`
	Path    string           `json:"path"`
	App     string           `json:"app,omitempty"`
	Machine string           `json:"machine,omitempty"`
	Worker  cluster.WorkerID `json:"worker,omitempty"`
	Code    int              `json:"code"` // 499: the client went away
	Bytes   int64            `json:"bytes"`
	TookMS  float64          `json:"took_ms"`
	FirstMS float64          `json:"first_byte_ms,omitempty"`
	HeldMS  float64          `json:"held_ms,omitempty"`
	StartMS float64          `json:"start_ms,omitempty"` // start phase of the wake that it waited for
	ReadyMS float64          `json:"ready_ms,omitempty"`
	Replays int              `json:"replays,omitempty"`
	Error   string           `json:"error,omitempty"` // code
	Why     string           `json:"why,omitempty"`   // one sentence
}
