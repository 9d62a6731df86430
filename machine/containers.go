package machine

// Container is one of several containers of a machine. souk only decodes it to say what it refuses.
type Container struct {
	Name         string                `json:"name"`
	Image        string                `json:"image"`
	Exec         []string              `json:"exec,omitempty"`
	Entrypoint   []string              `json:"entrypoint,omitempty"`
	Cmd          []string              `json:"cmd,omitempty"`
	User         string                `json:"user,omitempty"`
	Env          map[string]string     `json:"env,omitempty"`
	Secrets      []SecretRef           `json:"secrets,omitempty"`
	EnvFrom      []EnvFrom             `json:"env_from,omitempty"`
	Files        []File                `json:"files,omitempty"`
	Restart      *Restart              `json:"restart,omitempty"`
	Stop         *StopConfig           `json:"stop,omitempty"`
	DependsOn    []ContainerDependency `json:"depends_on,omitempty"`
	Healthchecks []ContainerCheck      `json:"healthchecks,omitempty"`
	Mounts       []ContainerMount      `json:"mounts,omitempty"`
}

// ContainerMount mounts a volume of Config.Volumes in a container.
type ContainerMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// ContainerDependency makes a container wait for another.
type ContainerDependency struct {
	Name      string `json:"name"`
	Condition string `json:"condition"` // exited_successfully, healthy, started
}

// ContainerCheck is a container's health check. Times are seconds.
type ContainerCheck struct {
	Name             string              `json:"name"`
	Interval         int64               `json:"interval,omitempty"`
	GracePeriod      int64               `json:"grace_period,omitempty"`
	SuccessThreshold int32               `json:"success_threshold,omitempty"`
	FailureThreshold int32               `json:"failure_threshold,omitempty"`
	Timeout          int64               `json:"timeout,omitempty"`
	Kind             string              `json:"kind,omitempty"`      // readiness, liveness
	Unhealthy        string              `json:"unhealthy,omitempty"` // stop
	HTTP             *ContainerHTTPCheck `json:"http,omitempty"`
	TCP              *ContainerTCPCheck  `json:"tcp,omitempty"`
	Exec             *ContainerExecCheck `json:"exec,omitempty"`
}

// ContainerHTTPCheck asks over HTTP.
type ContainerHTTPCheck struct {
	Port          int32        `json:"port"`
	Method        string       `json:"method,omitempty"`
	Path          string       `json:"path,omitempty"`
	Headers       []HTTPHeader `json:"headers,omitempty"`
	Scheme        string       `json:"scheme,omitempty"`
	TLSSkipVerify *bool        `json:"tls_skip_verify,omitempty"`
	TLSServerName string       `json:"tls_server_name,omitempty"`
}

// ContainerTCPCheck connects.
type ContainerTCPCheck struct {
	Port int32 `json:"port"`
}

// ContainerExecCheck runs a command.
type ContainerExecCheck struct {
	Command []string `json:"command"`
}

// VolumeConfig is a volume that containers share.
type VolumeConfig struct {
	Name    string         `json:"name"`
	TempDir *TempDirVolume `json:"temp_dir,omitempty"`
	Image   string         `json:"image,omitempty"`
}

// TempDirVolume is a directory that exists as long as its machine.
type TempDirVolume struct {
	StorageType string `json:"storage_type"` // disk, memory
	SizeMB      uint64 `json:"size_mb,omitempty"`
}
