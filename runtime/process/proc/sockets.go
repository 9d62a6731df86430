package proc

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Socket is one that a process listens on.
type Socket struct {
	Proto   string // tcp or tcp6
	Address string // host:port
}

// listening is the state of a socket in /proc/net/tcp that waits for connections.
const listening = "0A"

// Listening gives the listening TCP sockets of this network namespace by inode.
func Listening() map[string]Socket {
	out := make(map[string]Socket)
	for _, kind := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/net/" + kind)
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listening {
				continue
			}
			if a, ok := parseAddress(f[1]); ok {
				out["socket:["+f[9]+"]"] = Socket{Proto: kind, Address: a}
			}
		}
	}
	return out
}

// parseAddress reads "0100007F:1F90": words of 32 bits as they lie in memory, and a port.
func parseAddress(s string) (string, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(b) != 4 && len(b) != 16 {
		return "", false
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return "", false
	}
	return netip.AddrPortFrom(a, uint16(p)).String(), true
}

// maxSockets bounds how many descriptors of one process are looked at.
const maxSockets = 4096

// SocketsOf gives those of all that the process holds.
func SocketsOf(pid int, all map[string]Socket) []Socket {
	if len(all) == 0 {
		return nil
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(maxSockets)
	if err != nil {
		return nil
	}
	var out []Socket
	for _, n := range names {
		to, err := os.Readlink(dir + "/" + n)
		if err != nil {
			continue
		}
		if s, ok := all[to]; ok {
			out = append(out, s)
		}
	}
	return out
}

// Command gives the command line of a process, nothing for a zombie.
func Command(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Directory gives the current directory of a process, "" when it cannot be seen.
func Directory(pid int) string {
	d, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	if err != nil {
		return ""
	}
	return d
}
