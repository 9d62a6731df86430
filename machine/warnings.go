package machine

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Warned returns the warnings about the machine's present version from its events, the oldest first.
func (m *Machine) Warned() (out []string) {
	for _, e := range m.Events {
		switch e.Type {
		case EventWarning:
			out = append(out, e.Message)
		case eventLaunch: // older events are about an earlier version
			slices.Reverse(out)
			return out
		}
	}
	slices.Reverse(out)
	return out
}

// namedVolumes is how many directories a sentence lists.
const namedVolumes = 4

// VolumesLacking says, in one sentence or none, which of the data directories that an image declares (VOLUME) are not
// kept, because the config mounts no volume there or above. Paths are absolute and clean.
func VolumesLacking(c *Config, declared []string) []string {
	var lacking []string
	for _, d := range declared {
		if !slices.ContainsFunc(c.Mounts, func(m Mount) bool { return isWithin(d, path.Clean(m.Path)) }) {
			lacking = append(lacking, d)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	named := make([]string, min(len(lacking), namedVolumes))
	for i := range named {
		if named[i] = lacking[i]; strings.ContainsFunc(named[i], func(r rune) bool { return !strconv.IsPrint(r) }) {
			named[i] = strconv.Quote(named[i])
		}
	}
	flag, more := "--volume NAME:"+named[0], len(lacking)-len(named)
	if more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	at := named[0]
	if last := len(named) - 1; last > 0 {
		at = strings.Join(named[:last], ", ") + " and " + named[last]
	}
	return []string{fmt.Sprintf("the image keeps its data in %s, and no volume is attached there: it is lost when the "+
		"machine stops; see souk volumes create, and %s", at, flag)}
}

// Warnings says, in one sentence each, which fields of a config souk accepts without effect, because clients send them
// and a refusal would not help. docs/reference/config.md has the same list; a test compares them.
func Warnings(c *Config) []string {
	if c == nil {
		return nil
	}
	var out []string
	warn := func(when bool, sentence string) {
		if when {
			out = append(out, sentence)
		}
	}
	warn(len(c.Init.KernelArgs) > 0, "init.kernel_args has no effect: machines share the worker's kernel.")
	if g := c.Guest; g != nil {
		warn(g.MaxMemoryMB > 0, "guest.max_memory_mb has no effect: memory_mb is the limit.")
		warn(len(g.KernelArgs) > 0, "guest.kernel_args has no effect: machines share the worker's kernel.")
		warn(g.PersistRootfs == "never",
			"guest.persist_rootfs \"never\" has no effect: a machine's own files are kept until it is destroyed.")
	}
	if r := c.Rootfs; r != nil {
		warn(r.SizeGB > 0, "rootfs.size_gb is counted when the machine is placed, and is not held: what it writes may "+
			"grow beyond it.")
		warn(r.Persist == "never",
			"rootfs.persist \"never\" has no effect: a machine's own files are kept until it is destroyed.")
	}
	for _, m := range c.Mounts {
		if m.SizeGB > 0 || m.ExtendThresholdPercent > 0 || m.AddSizeGB > 0 || m.SizeGBLimit > 0 {
			warn(true, "mounts: size_gb, extend_threshold_percent, add_size_gb and size_gb_limit have no effect: a "+
				"volume has the size it was made with until it is extended.")
			break
		}
	}
	out = append(out, serviceWarnings(c.Services)...)
	warn(c.Metrics != nil, "metrics has no effect yet: scrape the machine itself.")
	warn(len(c.Statics) > 0, "statics have no effect: serve the files from the machine.")
	warn(c.DNS != nil, "dns has no effect: a container asks souk for names and is called by its machine's id; "+
		"a program of the host has the host's.")
	warn(len(c.Standbys) > 0, "standbys has no effect: this machine is not started when another one fails.")
	warn(c.CacheDrive != nil, "cache_drive has no effect: use the machine's own directory for scratch files.")
	warn(c.Spot != nil, "spot has no effect: souk has no spot prices.")
	warn(c.Restart != nil && c.Restart.GPUBidPrice != 0,
		"restart.gpu_bid_price has no effect: souk has no spot prices.")
	return out
}

// serviceWarnings says which settings of services the proxy ignores, each in one sentence.
func serviceWarnings(list []Service) (out []string) {
	warn := func(when bool, sentence string) {
		if when && !slices.Contains(out, sentence) {
			out = append(out, sentence)
		}
	}
	for _, s := range list {
		warn(s.Protocol == "udp", "services: protocol \"udp\" has no effect: the proxy leads TCP alone; publish the "+
			"port of a container with network.publish.")
		warn(s.ForceInstanceKey != nil || s.ForceInstanceDescription != nil,
			"services: force_instance_key and force_instance_description have no effect: a request names its machine "+
				"by the header Fly-Force-Instance-Id.")
		for _, p := range s.Ports {
			warn(slices.ContainsFunc(p.Handlers, func(h string) bool {
				return !slices.Contains([]string{"http", "tls", "proxy_proto", "tcp", ""}, h)
			}), "services: handlers other than http, tls and proxy_proto have no effect: connections to the port are "+
				"led on as they are.")
			warn(p.TLSOptions != nil,
				"services: tls_options have no effect: the proxy's own settings of TLS are for all.")
			if o := p.HTTPOptions; o != nil {
				warn(o.Compress != nil, "services: http_options.compress has no effect: the proxy compresses nothing.")
				warn(o.HeadersReadTimeout != nil, "services: http_options.headers_read_timeout has no effect: the "+
					"head of a request has 10 seconds.")
				warn(len(o.ReplayCache) > 0, "services: http_options.replay_cache has no effect: each request is "+
					"replayed anew.")
				warn(o.Response != nil && o.Response.Pristine != nil,
					"services: http_options.response.pristine has no effect: answers get the header Fly-Request-Id.")
			}
		}
	}
	return out
}

// PortWarnings says, in one sentence or none, that fewer machines can be made for requests than
// services[].create_up_to allows, because each needs a host port exclusively.
func PortWarnings(c *Config) []string {
	if c == nil || len(c.HostPorts()) == 0 {
		return nil
	}
	for _, s := range c.Services {
		if s.CreateUpTo != nil && *s.CreateUpTo > 1 {
			return []string{fmt.Sprintf("services: create_up_to is %d, and each host has room for one of these "+
				"machines, which needs port %d of its host for itself: run it as a container that publishes no port, "+
				"or, where its program can, have them share the port (network.share_ports, --share-ports)",
				*s.CreateUpTo, c.HostPorts()[0].HostPort)}
		}
	}
	return nil
}

// VolumeWarnings says, one sentence each, how a volume differs from what its size says.
func VolumeWarnings(v *Volume) (out []string) {
	if !v.SizeHeld {
		out = append(out, "size_gb is counted when the volume is placed, and is not held: what is written may grow "+
			"beyond it, and fill the disk of its worker.")
	}
	if v.NeedsRestart {
		out = append(out, "the machine that has the volume sees its new size after a restart: the kernel lets souk "+
			"grow it only while nobody uses it.")
	}
	return out
}
