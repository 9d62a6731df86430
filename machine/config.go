package machine

import "github.com/soukhq/souk/cluster"

// Config is a user's whole description of how a machine runs. An update replaces it completely; it is never merged.
// docs/reference/config.md describes what souk does with each field; a test compares it with this type.
type Config struct {
	Env         map[string]string      `json:"env,omitempty"`
	Init        Init                   `json:"init"`
	Guest       *Guest                 `json:"guest,omitempty"`
	Metadata    map[string]string      `json:"metadata,omitempty"`
	Mounts      []Mount                `json:"mounts,omitempty"`
	Services    []Service              `json:"services,omitempty"`
	Metrics     *Metrics               `json:"metrics,omitempty"`
	Checks      map[string]CheckConfig `json:"checks,omitempty"`
	Statics     []Static               `json:"statics,omitempty"`
	Image       string                 `json:"image,omitempty"`
	Files       []File                 `json:"files,omitempty"`
	Schedule    string                 `json:"schedule,omitempty"`
	AutoDestroy bool                   `json:"auto_destroy,omitempty"`
	Restart     *Restart               `json:"restart,omitempty"`
	DNS         *DNS                   `json:"dns,omitempty"`
	Processes   []ProcessConfig        `json:"processes,omitempty"`
	Standbys    []string               `json:"standbys,omitempty"`
	StopConfig  *StopConfig            `json:"stop_config,omitempty"`
	Containers  []Container            `json:"containers,omitempty"`
	Volumes     []VolumeConfig         `json:"volumes,omitempty"`
	Rootfs      *Rootfs                `json:"rootfs,omitempty"`
	CacheDrive  *CacheDrive            `json:"cache_drive,omitempty"`
	Spot        *Spot                  `json:"spot,omitempty"`
	Network     *Network               `json:"network,omitempty"`                   // souk's own
	Runtime     string                 `json:"runtime,omitempty"`                   // which OCI runtime makes its container; souk's own
	SuspendTo   string                 `json:"suspend_to,omitempty"`                // ToMemory (the default) or ToDisk; souk's own
	Size        string                 `json:"size,omitempty"`                      // deprecated: a preset's name
	NoAutostart *bool                  `json:"disable_machine_autostart,omitempty"` // deprecated
}

// Where the memory of a suspended machine is.
const (
	ToMemory = "memory" // in memory
	ToDisk   = "disk"   // on disk, if possible
)

// Init is the command to run. Exec takes precedence; otherwise Entrypoint runs, followed by Cmd. An Entrypoint of [""]
// clears the image's own, so that Cmd alone runs.
type Init struct {
	Exec       []string `json:"exec,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	TTY        bool     `json:"tty,omitempty"`
	SwapSizeMB *int     `json:"swap_size_mb,omitempty"`
	KernelArgs []string `json:"kernel_args,omitempty"`
}

// Guest is the shape of a machine.
type Guest struct {
	CPUKind          string   `json:"cpu_kind,omitempty"` // shared or performance
	CPUs             int      `json:"cpus,omitempty"`
	CPUMilli         int      `json:"cpu_milli,omitempty"` // thousandths of a core, instead of CPUs; souk's own
	MemoryMB         int      `json:"memory_mb,omitempty"`
	MaxMemoryMB      int      `json:"max_memory_mb,omitempty"`
	GPUs             int      `json:"gpus,omitempty"`
	GPUKind          string   `json:"gpu_kind,omitempty"`
	HostDedicationID string   `json:"host_dedication_id,omitempty"`
	PersistRootfs    Persist  `json:"persist_rootfs,omitempty"`
	KernelArgs       []string `json:"kernel_args,omitempty"`

	Extras map[string]int64 `json:"extras,omitempty"` // resources that the operator has named; souk's own
}

// Restart is a machine's restart policy.
type Restart struct {
	Policy      string  `json:"policy,omitempty"` // no, on-failure, always, spot-price
	MaxRetries  int     `json:"max_retries,omitempty"`
	GPUBidPrice float32 `json:"gpu_bid_price,omitempty"`
}

// Mount attaches a volume at a path of the machine.
type Mount struct {
	Volume                 string `json:"volume,omitempty"`
	Path                   string `json:"path,omitempty"`
	Name                   string `json:"name,omitempty"`
	SizeGB                 int    `json:"size_gb,omitempty"`
	Encrypted              bool   `json:"encrypted,omitempty"`
	ExtendThresholdPercent int    `json:"extend_threshold_percent,omitempty"`
	AddSizeGB              int    `json:"add_size_gb,omitempty"`
	SizeGBLimit            int    `json:"size_gb_limit,omitempty"`
}

// File is written into the machine's directory before each start.
type File struct {
	GuestPath   string  `json:"guest_path,omitempty"`
	RawValue    *string `json:"raw_value,omitempty"`   // base64; "" makes an empty file
	SecretName  *string `json:"secret_name,omitempty"` // the secret's value is base64
	ImageConfig *string `json:"image_config,omitempty"`
	Mode        uint32  `json:"mode,omitempty"` // permission bits; 0: 0644, or 0600 for a secret
}

// StopConfig says how to stop a machine.
type StopConfig struct {
	Timeout *Duration `json:"timeout,omitempty"`
	Signal  *string   `json:"signal,omitempty"`
}

// Service is a port of the machine that the proxy serves.
type Service struct {
	Protocol                 string         `json:"protocol,omitempty"`
	InternalPort             int            `json:"internal_port,omitempty"`
	Autostop                 *Autostop      `json:"autostop,omitempty"`
	Autostart                *bool          `json:"autostart,omitempty"`
	MinMachinesRunning       *int           `json:"min_machines_running,omitempty"`
	Ports                    []Port         `json:"ports,omitempty"`
	Checks                   []ServiceCheck `json:"checks,omitempty"`
	Concurrency              *Concurrency   `json:"concurrency,omitempty"`
	ForceInstanceKey         *string        `json:"force_instance_key"`
	ForceInstanceDescription *string        `json:"force_instance_description,omitempty"`

	// souk's own
	Hosts              []string  `json:"hosts,omitempty"` // names that requests are for, besides the app's own
	MaxMachinesRunning *int      `json:"max_machines_running,omitempty"`
	AutostopAfter      *Duration `json:"autostop_after,omitempty"` // how long a machine is idle before it is stopped
	Ignore             []Ignored `json:"ignore,omitempty"`         // neither start a machine nor keep it up
	IdleStream         *Duration `json:"idle_stream,omitempty"`    // a stream idle for longer keeps none up
	// CreateUpTo is up to how many machines are made for requests.
	CreateUpTo *int `json:"create_up_to,omitempty"`
	// Warm is the number of spares: machines kept asleep, beyond those that are up.
	Warm *int `json:"warm,omitempty"`
}

// Ignored selects requests that the proxy answers itself. A request must match all fields that are set.
type Ignored struct {
	Path      string `json:"path,omitempty"`       // a whole path, or a prefix with * at its end
	UserAgent string `json:"user_agent,omitempty"` // a part of it, in any case
	Source    string `json:"source,omitempty"`     // an address, or a network such as 192.0.2.0/24
	Status    int    `json:"status,omitempty"`     // of the response; 0: 200
}

// Concurrency limits how much of a service's load one machine takes.
type Concurrency struct {
	Type      string `json:"type,omitempty"` // connections or requests
	HardLimit int    `json:"hard_limit,omitempty"`
	SoftLimit int    `json:"soft_limit,omitempty"`
}

// Port is an outside port of a service.
type Port struct {
	Port              *int              `json:"port,omitempty"`
	StartPort         *int              `json:"start_port,omitempty"`
	EndPort           *int              `json:"end_port,omitempty"`
	Handlers          []string          `json:"handlers,omitempty"`
	ForceHTTPS        bool              `json:"force_https,omitempty"`
	TLSOptions        *TLSOptions       `json:"tls_options,omitempty"`
	HTTPOptions       *HTTPOptions      `json:"http_options,omitempty"`
	ProxyProtoOptions *ProxyProtoOption `json:"proxy_proto_options,omitempty"`
}

// TLSOptions are a port's TLS settings.
type TLSOptions struct {
	ALPN              []string `json:"alpn,omitempty"`
	Versions          []string `json:"versions,omitempty"`
	DefaultSelfSigned *bool    `json:"default_self_signed,omitempty"`
}

// HTTPOptions are a port's HTTP settings.
type HTTPOptions struct {
	Compress           *bool         `json:"compress,omitempty"`
	Response           *HTTPResponse `json:"response,omitempty"`
	H2Backend          *bool         `json:"h2_backend,omitempty"`
	IdleTimeout        *uint32       `json:"idle_timeout,omitempty"`
	HeadersReadTimeout *uint32       `json:"headers_read_timeout,omitempty"`
	ReplayCache        []ReplayCache `json:"replay_cache,omitempty"`
}

// HTTPResponse sets headers of responses.
type HTTPResponse struct {
	Headers  map[string]any `json:"headers,omitempty"`
	Pristine *bool          `json:"pristine,omitempty"`
}

// ReplayCache keeps replay decisions.
type ReplayCache struct {
	PathPrefix  string `json:"path_prefix"`
	TTLSeconds  int    `json:"ttl_seconds"`
	Type        string `json:"type"`
	Name        string `json:"name"`
	AllowBypass bool   `json:"allow_bypass,omitempty"`
}

// ProxyProtoOption chooses the PROXY protocol's version.
type ProxyProtoOption struct {
	Version string `json:"version,omitempty"`
}

// HTTPHeader is a header with its values.
type HTTPHeader struct {
	Name   string   `json:"name,omitempty"`
	Values []string `json:"values,omitempty"`
}

// ServiceCheck is a health check of a service.
type ServiceCheck struct {
	Port          *int         `json:"port,omitempty"`
	Type          *string      `json:"type,omitempty"` // tcp or http
	Interval      *Duration    `json:"interval,omitempty"`
	Timeout       *Duration    `json:"timeout,omitempty"`
	GracePeriod   *Duration    `json:"grace_period,omitempty"`
	Method        *string      `json:"method,omitempty"`
	Path          *string      `json:"path,omitempty"`
	Protocol      *string      `json:"protocol,omitempty"`
	TLSSkipVerify *bool        `json:"tls_skip_verify,omitempty"`
	TLSServerName *string      `json:"tls_server_name,omitempty"`
	Headers       []HTTPHeader `json:"headers,omitempty"`
}

// CheckConfig is a machine's own health check.
type CheckConfig struct {
	ServiceCheck
	Kind *string `json:"kind,omitempty"` // informational or readiness
}

// Metrics is where the machine serves its own metrics.
type Metrics struct {
	Port  int    `json:"port,omitempty"`
	Path  string `json:"path,omitempty"`
	HTTPS bool   `json:"https,omitempty"`
}

// Static is a directory served without the machine.
type Static struct {
	GuestPath     string `json:"guest_path"`
	URLPrefix     string `json:"url_prefix"`
	TigrisBucket  string `json:"tigris_bucket"`
	IndexDocument string `json:"index_document"`
}

// ProcessConfig is one of several processes of a machine.
type ProcessConfig struct {
	Exec             []string          `json:"exec,omitempty"`
	Entrypoint       []string          `json:"entrypoint,omitempty"`
	Cmd              []string          `json:"cmd,omitempty"`
	User             string            `json:"user,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	Secrets          []SecretRef       `json:"secrets,omitempty"`
	IgnoreAppSecrets bool              `json:"ignore_app_secrets,omitempty"`
	EnvFrom          []EnvFrom         `json:"env_from,omitempty"`
}

// SecretRef names a secret and the variable it is given in.
type SecretRef struct {
	EnvVar string `json:"env_var"`
	Name   string `json:"name"`
}

// EnvFrom fills a variable from a field of the machine.
type EnvFrom struct {
	EnvVar   string `json:"env_var"`
	FieldRef string `json:"field_ref"` // id, version, app_name, private_ip, region, image
}

// DNS is a machine's resolver.
type DNS struct {
	SkipRegistration bool         `json:"skip_registration,omitempty"`
	Nameservers      []string     `json:"nameservers,omitempty"`
	Searches         []string     `json:"searches,omitempty"`
	Options          []DNSOption  `json:"options,omitempty"`
	ForwardRules     []DNSForward `json:"dns_forward_rules,omitempty"`
	Hostname         string       `json:"hostname,omitempty"`
	HostnameFQDN     string       `json:"hostname_fqdn,omitempty"`
}

// DNSOption is a resolver option.
type DNSOption struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

// DNSForward sends a domain's queries elsewhere.
type DNSForward struct {
	Basename string `json:"basename,omitempty"`
	Addr     string `json:"addr,omitempty"`
}

// Rootfs says what happens to the machine's own files on a restart.
type Rootfs struct {
	Persist Persist `json:"persist,omitempty"`
	SizeGB  uint64  `json:"size_gb,omitempty"`

	ReadOnly bool `json:"read_only,omitempty"` // the image's files cannot be overwritten; souk's own
}

// CacheDrive is scratch space.
type CacheDrive struct {
	SizeMB uint64 `json:"size_mb,omitempty"`
}

// Spot marks a machine as cheap and evictable.
type Spot struct {
	MaxPriceFraction float64 `json:"max_price_fraction,omitempty"`
}

// Launch is the body of a create and of an update.
type Launch struct {
	ID                      string  `json:"id,omitempty"` // chosen by the buyer; souk's extension, for retries
	Name                    string  `json:"name,omitempty"`
	Region                  string  `json:"region,omitempty"`
	Config                  *Config `json:"config,omitempty"`
	SkipLaunch              bool    `json:"skip_launch,omitempty"`
	SkipServiceRegistration bool    `json:"skip_service_registration,omitempty"`
	SkipSecrets             bool    `json:"skip_secrets,omitempty"`
	MinSecretsVersion       *uint64 `json:"min_secrets_version,omitempty"`
	LeaseTTL                int     `json:"lease_ttl,omitempty"`       // seconds
	CurrentVersion          string  `json:"current_version,omitempty"` // update: the instance_id it must still have

	// souk's extension for a create: a client reads the output (LogQuery.Hold). The program waits for the reader, as
	// on a pipe. Without a reader it waits for 30 s, once.
	Attach bool `json:"attach,omitempty"`

	// souk's extension; an update without it keeps the present scheduling
	Scheduling *Scheduling `json:"scheduling,omitempty"`

	// UnixUser is whose machine it is, see Machine.UnixUser. A gateway sets it, whatever the client sends.
	UnixUser *cluster.UnixUser `json:"unix_user,omitempty"`
}
