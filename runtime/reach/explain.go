package reach

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// lookAgain is the least time between two walks over the host's processes.
const lookAgain = time.Second

// Explain returns where the program of a machine listens instead, if the machine refuses connections to a port; "":
// nowhere, or unknown.
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
		return advise(places(proc.ListenersOn(port)), "127.0.0.1 or 0.0.0.0")
	}
	pid, known := d.look.inside(at)
	if !known {
		return ""
	}
	return advise(places(proc.ListenersAt(pid, port)), "0.0.0.0 or [::]")
}

// advise returns a sentence that says where the program listens, and where it should.
func advise(at []netip.Addr, better string) string {
	if slices.ContainsFunc(at, netip.Addr.IsUnspecified) {
		return "" // it has started to listen meanwhile
	}
	switch len(at) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("the program listens on %s only; make it listen on %s", at[0], better)
	}
	return fmt.Sprintf("the program listens on %s and %s only; make it listen on %s", at[0], at[1], better)
}

// places returns the addresses of sockets, sorted and without duplicates.
func places(list []proc.Listener) (out []netip.Addr) {
	for _, l := range list {
		if !slices.Contains(out, l.At) {
			out = append(out, l.At)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// looker finds a process in the network namespace that has an address. The result of a walk over all processes is
// cached, so however many machines refuse, there is at most one walk per lookAgain.
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

// insiders returns a process for each unique local IPv6 address of the network namespaces.
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
