package reach

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/machine"
)

// Bounds of a look at where programs listen.
const (
	lookAgain = time.Second // between two walks over the host's processes
	maxTable  = 4 << 20     // bytes of a table of sockets that are read
)

// Explain says, of a machine that refuses connections to a port, where the program listens on that port instead; "": it
// does not, or that cannot be told.
func (d *Dialer) Explain(m *machine.Machine, port int, err error) string {
	if err == nil || !Refuses(err) {
		return ""
	}
	list, err := m.Reach(port)
	if err != nil {
		return ""
	}
	at := list[0].Addr()
	if at.IsLoopback() {
		return advise(listeners("/proc/thread-self/net", port), "127.0.0.1 or 0.0.0.0")
	}
	pid, known := d.look.inside(at)
	if !known {
		return ""
	}
	return advise(listeners(filepath.Join("/proc", strconv.Itoa(pid), "net"), port), "0.0.0.0 or [::]")
}

// advise says where something listens, and where it should.
func advise(at []netip.Addr, better string) string {
	if slices.ContainsFunc(at, netip.Addr.IsUnspecified) {
		return "" // it has begun to listen meanwhile
	}
	switch len(at) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("the program listens on %s only; make it listen on %s", at[0], better)
	}
	return fmt.Sprintf("the program listens on %s and %s only; make it listen on %s", at[0], at[1], better)
}

// listeners are the addresses, of both kinds, at which a port of TCP is listened on in a network namespace, as its
// directory of /proc says, each once and in order.
func listeners(dir string, port int) (out []netip.Addr) {
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue // the process has ended, or the kernel has no IPv6
		}
		lines := bufio.NewScanner(io.LimitReader(f, maxTable))
		for lines.Scan() {
			if at, is := listener(lines.Text(), port); is && !slices.Contains(out, at) {
				out = append(out, at)
			}
		}
		f.Close()
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// listener reads a line of /proc/net/tcp or tcp6 and reports whether it is of a socket that listens on a port.
func listener(line string, port int) (at netip.Addr, is bool) {
	const listens = "0A" // TCP_LISTEN
	f := strings.Fields(line)
	if len(f) < 4 || f[3] != listens {
		return at, false
	}
	host, number, found := strings.Cut(f[1], ":")
	if n, err := strconv.ParseUint(number, 16, 16); !found || err != nil || int(n) != port {
		return at, false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return at, false
	}
	for i := 0; i < len(raw); i += 4 { // each is a number of the machine's own order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	at, is = netip.AddrFromSlice(raw)
	return at, is
}

// looker finds a process in the network namespace that has an address. A walk over all processes is kept for a moment,
// so that however many machines refuse, there is one walk in lookAgain.
type looker struct {
	mu   sync.Mutex
	when time.Time
	pids map[netip.Addr]int
}

func (l *looker) inside(at netip.Addr) (pid int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.when) >= lookAgain {
		l.pids = insiders()
		l.when = time.Now()
	}
	pid, known = l.pids[at]
	return pid, known
}

// insiders are processes by the unique local IPv6 addresses of the network namespaces that they are in.
func insiders() map[netip.Addr]int {
	out := map[netip.Addr]int{}
	es, err := os.ReadDir("/proc")
	if err != nil {
		return out
	}
	seen := map[string]bool{}
	for _, e := range es {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/net"))
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "net/if_inet6"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			first, _, _ := strings.Cut(line, " ")
			if b, err := hex.DecodeString(first); err == nil {
				if a, ok := netip.AddrFromSlice(b); ok && a.Is6() && a.IsPrivate() {
					out[a] = pid
				}
			}
		}
	}
	return out
}
