package proc

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Socket is a listening socket of a process.
type Socket struct {
	Proto   string // tcp or tcp6
	Address string // host:port
}

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// Listening returns the listening TCP sockets of this network namespace, by inode.
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

// parseAddress parses "0100007F:1F90": words of 32 bits in host byte order, and a port.
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

// maxSockets bounds the descriptors of one process that are read.
const maxSockets = 4096

// maxTable bounds the bytes read of a table of sockets: a machine may have filled it.
const maxTable = 4 << 20

// SocketsOf returns the sockets among all that the process has open.
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

// Command returns the command line of a process, nothing for a zombie.
func Command(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Directory returns the current directory of a process, "" if it cannot be read.
func Directory(pid int) string {
	d, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	if err != nil {
		return ""
	}
	return d
}

// Listener is a listening socket.
type Listener struct {
	At   netip.Addr
	Link string // the link's target in /proc/PID/fd of a process that has it
}

// ListenersOn returns the sockets of this network namespace that listen on a TCP port.
func ListenersOn(port int) []Listener {
	if out, told := listListeners(port); told {
		return out
	}
	return listenersOn("/proc/net/", port)
}

// ListenersAt is ListenersOn for the network namespace of a process.
func ListenersAt(pid, port int) []Listener {
	return listenersOn(fmt.Sprintf("/proc/%d/net/", pid), port)
}

// listenersOn reads the table of sockets of a network namespace. The kernel lists listening sockets first, so it stops
// after those.
func listenersOn(dir string, port int) (out []Listener) {
	want := fmt.Sprintf(":%04X", port)
	for _, kind := range []string{"tcp", "tcp6"} {
		f, err := os.Open(dir + kind)
		if err != nil {
			continue // no IPv6
		}
		lines := bufio.NewScanner(io.LimitReader(f, maxTable))
		for first := true; lines.Scan(); first = false {
			if first {
				continue // the header line
			}
			f := strings.Fields(lines.Text())
			if len(f) < 10 || f[3] != listening {
				break
			}
			if !strings.HasSuffix(f[1], want) {
				continue
			}
			if a, ok := parseAddress(f[1]); ok {
				if at, err := netip.ParseAddrPort(a); err == nil {
					out = append(out, Listener{At: at.Addr(), Link: "socket:[" + f[9] + "]"})
				}
			}
		}
		f.Close()
	}
	return out
}

// Holds returns which of some link targets of /proc/PID/fd a process has open, each with the path of its link. An error
// means that the process may not be read; a process that has ended is no error.
func Holds(pid int, links []string) (paths map[string]string, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return nil, onlyDenied(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(maxSockets)
	if err := onlyDenied(err); err != nil {
		return nil, err
	}
	for _, n := range names {
		at := dir + "/" + n
		if to, err := os.Readlink(at); err == nil && slices.Contains(links, to) {
			if paths == nil {
				paths = map[string]string{}
			}
			paths[to] = at
		}
	}
	return paths, nil
}

func onlyDenied(err error) error {
	if os.IsPermission(err) {
		return err
	}
	return nil
}
