package broker

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// The range that a gang's MASTER_PORT is drawn from.
const (
	firstPort = 20000
	portRange = 10000
)

// gangLayout says which member of a gang has which rank and runs on which host, once all are placed.
type gangLayout struct {
	id    string
	rank  map[int]int // of members that are placed
	hosts []string    // by rank
	local []int       // by rank: how many ranks before it are on the same host
}

func layoutOf(id string, homes []cluster.WorkerID, view cluster.View) *gangLayout {
	c := &gangLayout{id: id, rank: map[int]int{}}
	on := map[string]int{}
	for m, home := range homes {
		if home == "" {
			continue
		}
		c.rank[m] = len(c.hosts)
		host := addressOf(view, home)
		c.hosts = append(c.hosts, host)
		c.local = append(c.local, on[host])
		on[host]++
	}
	return c
}

// AddressAttribute names the attribute in which a worker says at which address its machines are reached.
const AddressAttribute = "address"

func addressOf(view cluster.View, w cluster.WorkerID) string {
	for i := range view.Workers {
		if view.Workers[i].Worker == w {
			if v, ok := view.Workers[i].Attributes[AddressAttribute]; ok {
				return v.String()
			}
		}
	}
	return "127.0.0.1"
}

// HostFile is the file, below a gang's machine's directory, that lists the host of each rank, one a line, as MPI reads
// it.
const HostFile = "hostfile"

// memberLaunch returns a member's launch with the environment that torchrun and MPI programs expect, and souk's own
// variables.
func (c *gangLayout) memberLaunch(base *machine.Launch, member int) *machine.Launch {
	l, rank := base.Clone(), c.rank[member]
	if l.Config.Env == nil {
		l.Config.Env = map[string]string{}
	}
	port := firstPort
	for _, b := range []byte(c.id) {
		port = firstPort + (port*31+int(b))%portRange
	}
	for name, value := range map[string]string{
		"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(len(c.hosts)), "LOCAL_RANK": strconv.Itoa(c.local[rank]),
		"MASTER_ADDR": c.hosts[0], "MASTER_PORT": strconv.Itoa(port),
		"SOUK_GANG": c.id, "SOUK_INDEX": strconv.Itoa(rank), "SOUK_COUNT": strconv.Itoa(len(c.hosts)),
		"SOUK_PEERS_FILE":                HostFile,
		"OMPI_MCA_orte_default_hostfile": HostFile,
	} {
		if _, own := l.Config.Env[name]; !own { // keep the user's own value
			l.Config.Env[name] = value
		}
	}
	if l.Config.Metadata == nil {
		l.Config.Metadata = map[string]string{}
	}
	l.Config.Metadata[machine.MetadataGang], l.Config.Metadata[machine.MetadataRank] = c.id, strconv.Itoa(rank)
	list := base64.StdEncoding.EncodeToString([]byte(strings.Join(c.hosts, "\n") + "\n"))
	l.Config.Files = append(l.Config.Files, machine.File{GuestPath: "/" + HostFile, RawValue: &list})
	return l
}
