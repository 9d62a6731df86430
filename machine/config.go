package machine

// Config is all a user says of how a machine is to run. It is replaced whole by an update, never merged.
// What souk does with each field stands in docs/reference/config.md, which a test holds against this type.
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

// Where a machine that is suspended has its memory.
const (
	ToMemory = "memory" // where it was
	ToDisk   = "disk"   // on disk, where that can be
)

// Init says what to run. Exec wins; else Entrypoint followed by Cmd. An Entrypoint of [""] clears the image's own, so that
// Cmd alone is run.
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
	CPUMilli         int      `json:"cpu_milli,omitempty"` // thousandths of a core, in the place of CPUs; souk's own
	MemoryMB         int      `json:"memory_mb,omitempty"`
	MaxMemoryMB      int      `json:"max_memory_mb,omitempty"`
	GPUs             int      `json:"gpus,omitempty"`
	GPUKind          string   `json:"gpu_kind,omitempty"`
	HostDedicationID string   `json:"host_dedication_id,omitempty"`
	PersistRootfs    Persist  `json:"persist_rootfs,omitempty"`
	KernelArgs       []string `json:"kernel_args,omitempty"`

	Extras map[string]int64 `json:"extras,omitempty"` // what the operator has named so; souk's own
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
	RawValue    *string `json:"raw_value,omitempty"`   // base64; "" is an empty file
	SecretName  *string `json:"secret_name,omitempty"` // whose value is base64
	ImageConfig *string `json:"image_config,omitempty"`
	Mode        uint32  `json:"mode,omitempty"` // permission bits; 0: 0644, of a secret 0600
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
	Hosts              []string  `json:"hosts,omitempty"` // that requests are for, beside the app's own names
	MaxMachinesRunning *int      `json:"max_machines_running,omitempty"`
	AutostopAfter      *Duration `json:"autostop_after,omitempty"` // for how long one is idle before it is stopped
	Ignore             []Ignored `json:"ignore,omitempty"`         // requests that neither start a machine nor keep it up
	IdleStream         *Duration `json:"idle_stream,omitempty"`    // without a byte for so long none is kept up by one
	// CreateUpTo is how many machines there may be when requests have more of them made.
	CreateUpTo *int `json:"create_up_to,omitempty"`
	// Warm is how many spares there are: machines that are made and asleep, beyond those that are up.
	Warm *int `json:"warm,omitempty"`
}

// Ignored names requests that the proxy answers itself. All that it says must be so of a request.
type Ignored struct {
	Path      string `json:"path,omitempty"`       // whole, or with * at its end what begins so
	UserAgent string `json:"user_agent,omitempty"` // a part of it, in capitals or small
	Source    string `json:"source,omitempty"`     // an address, or a network as 192.0.2.0/24
	Status    int    `json:"status,omitempty"`     // of the answer; 0: 200
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

// HTTPResponse sets headers of answers.
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

// Metrics says where the machine's own metrics are.
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

// Rootfs says what becomes of the machine's own files over a restart.
type Rootfs struct {
	Persist Persist `json:"persist,omitempty"`
	SizeGB  uint64  `json:"size_gb,omitempty"`

	ReadOnly bool `json:"read_only,omitempty"` // what the image has cannot be written over; souk's own
}

// CacheDrive is scratch space.
type CacheDrive struct {
	SizeMB uint64 `json:"size_mb,omitempty"`
}

// Spot marks a machine as cheap to take away.
type Spot struct {
	MaxPriceFraction float64 `json:"max_price_fraction,omitempty"`
}

// Launch is the body of a create and of an update.
type Launch struct {
	ID                      string  `json:"id,omitempty"` // the buyer's own choice; souk's extension, for retries
	Name                    string  `json:"name,omitempty"`
	Region                  string  `json:"region,omitempty"`
	Config                  *Config `json:"config,omitempty"`
	SkipLaunch              bool    `json:"skip_launch,omitempty"`
	SkipServiceRegistration bool    `json:"skip_service_registration,omitempty"`
	SkipSecrets             bool    `json:"skip_secrets,omitempty"`
	MinSecretsVersion       *uint64 `json:"min_secrets_version,omitempty"`
	LeaseTTL                int     `json:"lease_ttl,omitempty"`       // seconds
	CurrentVersion          string  `json:"current_version,omitempty"` // update: the instance_id it must still have

	// souk's extension, of a create: its output has a reader (LogQuery.Hold). The program waits for the reader, as on a
	// pipe. While there is none it waits for 30 s, once.
	Attach bool `json:"attach,omitempty"`

	// souk's extension; an update that leaves it out keeps what there is
	Scheduling *Scheduling `json:"scheduling,omitempty"`
}
