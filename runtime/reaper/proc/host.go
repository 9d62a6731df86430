package proc

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"
)

// Host is a host's resources and their use.
type Host struct {
	CPU               time.Duration // total busy time of all CPUs since boot
	CPUs              int
	Memory, Available int64 // bytes; Available: usable without swapping
}

// ReadHost reads the values of this host.
func ReadHost() (Host, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Host{}, err
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Host{}, err
	}
	return parseHost(stat, memory)
}

// parseHost parses /proc/stat and /proc/meminfo. Time that a CPU waited for a disk, or that the hypervisor gave to
// another guest, does not count as busy.
func parseHost(stat, memory []byte) (h Host, err error) {
	for line := range bytes.Lines(stat) {
		f := strings.Fields(string(line))
		switch {
		case len(f) < 8 || !strings.HasPrefix(f[0], "cpu"):
		case f[0] != "cpu":
			h.CPUs++
		default:
			for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
				n, err := strconv.ParseInt(f[i], 10, 64)
				if err != nil {
					return h, err
				}
				h.CPU += time.Duration(n) * time.Second / TicksPerSecond
			}
		}
	}
	for line := range bytes.Lines(memory) {
		f := strings.Fields(string(line))
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			h.Memory = n << 10
		case "MemAvailable:":
			h.Available = n << 10
		}
	}
	if h.CPUs == 0 || h.Memory <= 0 || h.Available > h.Memory {
		return h, errors.New("/proc/stat or /proc/meminfo is not as Linux writes it")
	}
	return h, nil
}
