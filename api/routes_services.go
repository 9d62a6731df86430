package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// The operations on what requests from outside reach.
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

// Doors are where requests come in at a member.
type Doors struct {
	HTTP    []string   `json:"http"`    // addresses
	HTTPS   []string   `json:"https"`   // the same, over TLS
	Domains []string   `json:"domains"` // below which each app has its name
	Ports   []DoorPort `json:"ports"`   // of services, beside those
}

// DoorPort is a port that some service asks for.
type DoorPort struct {
	Port int    `json:"port"`
	App  string `json:"app"`            // that has it
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
	Port     int      `json:"port"`  // of its machines
	Protocol string   `json:"protocol"`
	Outside  []int    `json:"ports"` // at which it is reached beside those of HTTP
	URLs     []string `json:"urls"`  // by which the member that answers leads to it

	Autostart     bool    `json:"autostart"`
	Autostop      string  `json:"autostop"`                 // off, stop or suspend
	AutostopAfter float64 `json:"autostop_after,omitempty"` // seconds
	Min           int     `json:"min_machines_running"`
	Max           int     `json:"max_machines_running"` // 0: no bound
	CreateUpTo    int     `json:"create_up_to"`         // machines, when more are made; 0: none is made
	Warm          int     `json:"warm"`                 // spares that are to be asleep; 0: none is made for that
	Concurrency   string  `json:"concurrency"`          // requests or connections
	Soft          int     `json:"soft_limit"`           // 0: none
	Hard          int     `json:"hard_limit"`           // 0: none

	Up       int              `json:"up"`
	Spares   int              `json:"spares"` // machines that are asleep and that a request can wake
	Load     int              `json:"load"`   // requests or connections under way, of all members, as last told
	Held     int              `json:"held"`   // requests that wait at the member that answers
	Machines []ServiceMachine `json:"machines"`
	Groups   []string         `json:"groups,omitempty"` // of the app's service that the machines are of, sorted
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
	Cordoned bool             `json:"cordoned,omitempty"` // no request goes there
	Unheard  bool             `json:"unheard,omitempty"`  // its worker cannot be asked
}

// RouteList is what a member's proxy leads where.
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
	Inside   int    `json:"inside"` // the port of its machines
	Up       int    `json:"up"`
	Machines int    `json:"machines"`
	Spares   int    `json:"spares"`       // machines that are asleep and that a request can wake
	Warm     int    `json:"warm"`         // spares that are to be asleep
	Made     int    `json:"create_up_to"` // machines, when more are made; 0: none is made
	// Groups are those of the app's service whose machines answer, sorted: of several each gets a part of the requests.
	Groups   []string `json:"groups,omitempty"`
	Shadowed []string `json:"shadowed,omitempty"` // other apps that say the same, and do not get it
	Problem  string   `json:"problem,omitempty"`
	// Certificate is what is wrong with the one for its name at the member that answers; none: nothing that it knows.
	Certificate *CertificateProblem `json:"certificate,omitempty"`
}

// CertificateProblem says why a member has no certificate for some names, or no newer one.
type CertificateProblem struct {
	Names  []string   `json:"names"`          // none: of a file that could not be read
	Source string     `json:"source"`         // file or acme
	File   string     `json:"file,omitempty"` // of the user's
	Why    string     `json:"why"`
	Again  *time.Time `json:"again,omitempty"` // it is not tried again before; then a client that asks for the name has it tried
	Ends   *time.Time `json:"ends,omitempty"`  // when its certificate ends; left out without one
}

// OtherApps is the label of all apps in the metrics beyond those that are told of by name. No app has that name.
const OtherApps = "_other"

// ProxyUsage is what the proxy of a member does.
type ProxyUsage struct {
	Requests uint64 `json:"requests"` // answered since it started
	Held     int    `json:"held"`     // that wait now
}

// ProxiedRequest is one request as the proxy keeps it, and a line of its access log. It has no query, no headers but
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
	StartMS float64          `json:"start_ms,omitempty"` // of the wake that it waited for
	ReadyMS float64          `json:"ready_ms,omitempty"`
	Replays int              `json:"replays,omitempty"`
	Error   string           `json:"error,omitempty"` // code
	Why     string           `json:"why,omitempty"`   // one sentence
}
