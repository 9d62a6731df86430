package machine

// Warnings says, one sentence each, which fields of a config souk accepts without effect, because clients send them
// and a refusal would help nobody. docs/reference/config.md lists the same, and a test holds it against this.
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
	warn(len(c.Services) > 0, "services are kept and their ports counted, but have no effect yet: souk has no proxy.")
	warn(c.NoAutostart != nil, "disable_machine_autostart has no effect yet: souk has no proxy that starts machines.")
	warn(len(c.Checks) > 0, "checks are kept but not run yet: look at the machine's state instead.")
	warn(c.Metrics != nil, "metrics has no effect yet: scrape the machine itself.")
	warn(len(c.Statics) > 0, "statics have no effect: serve the files from the machine.")
	warn(c.DNS != nil, "dns has no effect: a machine uses the worker's own resolver and host name.")
	warn(len(c.Standbys) > 0, "standbys has no effect: this machine is not started when another one fails.")
	warn(c.CacheDrive != nil, "cache_drive has no effect: use the machine's own directory for scratch files.")
	warn(c.Spot != nil, "spot has no effect: souk has no prices.")
	warn(c.Restart != nil && c.Restart.GPUBidPrice != 0, "restart.gpu_bid_price has no effect: souk has no prices.")
	return out
}

// VolumeWarnings says, one sentence each, what of a volume is not as its size says.
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
