package gossip

import (
	"context"
	"log/slog"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// Puller asks a member for records that we lack: one question, one answer. Package wire implements it over mTLS;
// without it, gossip uses its own Puller, sealed with the gossip key. The answer is taken to come from that member.
type Puller interface {
	Pull(ctx context.Context, member cluster.Member, d registry.Digest) (registry.Delta, error)
}

// Options configure a member.
type Options struct {
	Self        cluster.WorkerID
	Incarnation uint64        // the least to use; a number saved in Dir or known to other members may raise it
	Role        string        // "worker", "gateway"
	API         string        // address of the member's API, as others reach it
	Capability  int           // the dated number of the member's protocol
	Build       cluster.Build // announced to the others
	Bind        string        // host:port for packets and streams; port 0 takes a free one
	Advertise   string        // host:port as others reach it; "": as bound
	// AES keys of 16, 24 or 32 bytes; the first encrypts, all decrypt. Empty: gossip is not encrypted. See SetKeys.
	Keys [][]byte

	KeysGeneration int // generation of Keys; announced to the others

	Dir      string   // keeps members and objects over restarts; "": nothing is kept
	Peers    []string // host:port of members to join at start, besides the saved ones
	Knobs    Knobs
	Puller   Puller                        // nil: gossip's own
	Sign     func(signed []byte) []byte    // is called from several goroutines at once
	Verify   registry.Verify               // not nil: unsigned records are rejected
	May      func(x registry.Object) error // returns why this member may not write an object; nil: it may
	Registry registry.Options
	Log      *slog.Logger // nil: silent
	// Conflict is called when a live process has our name at another address; api is the address of its API. It must
	// not block.
	Conflict func(addr, api string)
	// called when a consumer or a loop hangs; nil: it is only logged
	Stuck func(consumer string, since time.Duration)
}

// Knobs are the times and amounts of the protocol.
type Knobs struct {
	Probe        time.Duration // between probes of one member after another
	ProbeTimeout time.Duration // until other members are asked to probe
	Indirect     int           // how many members are asked
	// multiplier of the time from suspicion to death; this and SuspicionMax: see memberlist.Config
	Suspicion    int
	SuspicionMax int
	Reprobe      time.Duration // between our own probes of suspected members
	Retransmit   int           // multiplier of how often members repeat memberlist's own messages
	Gossip       time.Duration // between the repetitions
	Push         int           // members that each member passes a change on to
	// the least wait for the acknowledgement of a change; slower round trips lengthen it
	Patience   time.Duration
	Fanout     int           // members that each repetition goes to
	PushPull   time.Duration // between memberlist's own full exchanges
	Sync       time.Duration // between pulls without a hint of a difference
	Settle     time.Duration // how long to wait before a pull, as the difference may resolve itself
	Flush      time.Duration // how long changes are coalesced
	Rate       int           // bytes a second of our own broadcasts; more waits and is coalesced
	Reconnect  time.Duration // between attempts to reach a member that is gone
	Save       time.Duration // between writes of changed members
	StuckAfter time.Duration // until a consumer that does not read counts as hanging
	// Lost is how long a member must be unreachable before its machines count as lost, where no other time is
	// configured.
	Lost time.Duration
}

// LAN returns the defaults. Up to some thousand members, all of them notice a dead worker within 3 s: memberlist's
// suspicion time grows with the logarithm of the cluster's size, and the defaults leave room for that. See
// docs/decisions/0010-registry.md.
func LAN() Knobs {
	return Knobs{Probe: 170 * time.Millisecond, ProbeTimeout: 80 * time.Millisecond, Indirect: 6, Suspicion: 3,
		SuspicionMax: 6, Retransmit: 8, Reprobe: 350 * time.Millisecond,
		Gossip: 80 * time.Millisecond, Push: 4, Patience: 20 * time.Millisecond, Fanout: 3,
		PushPull: 30 * time.Second, Sync: 15 * time.Second, Settle: 100 * time.Millisecond,
		Flush: 5 * time.Millisecond, Rate: 32 << 10, Reconnect: 5 * time.Second, Save: 10 * time.Second,
		StuckAfter: 10 * time.Second, Lost: 3 * time.Second}
}

// WAN returns knobs for members that answer late: over slow links, or many on a host with few cores. A probe may take
// half a second, three times as long as with LAN. A death is noticed in 3 to 7 s by some hundred members.
func WAN() Knobs {
	k := LAN()
	k.Probe, k.ProbeTimeout, k.Gossip, k.Reprobe = 500*time.Millisecond, 250*time.Millisecond, 200*time.Millisecond,
		time.Second
	k.Patience, k.Lost = 150*time.Millisecond, 10*time.Second
	return k
}

// Paces are the selectable knobs by name. All members of a cluster should use the same: each judges by its own.
var Paces = map[string]func() Knobs{"lan": LAN, "wan": WAN} //nolint:gochecknoglobals // a constant

// Limits of a member.
const (
	inboxSize   = 4096 // received broadcasts waiting; more are dropped and found by a pull
	packetSize  = 1400 // bytes of a packet
	messageSize = 1150 // bytes of a broadcast: a packet less the overhead of memberlist and encryption
	spreadSize  = 1280 // bytes of the broadcasts in one packet
	takeMost    = 64   // packets merged at once
	pullSize    = 256 << 10
	pullRounds  = 64   // questions of one pull
	maxGone     = 1024 // members remembered after they are gone
	maxAnswers  = 64   // other members' questions answered at once
	maxLarge    = 32   // streams of more than smallStream bytes read at once
	smallStream = 64 << 10
	firstTime   = time.Second // to wait for the first byte of a stream
	newsRuns    = 4           // packets of one flush; members pull the rest
	pullTimeout = 10 * time.Second
)

func (o *Options) check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, codeGossipOptions, format, args...)
	}
	if o.Self == "" || len(o.Self) > registry.MaxName {
		return bad("a member needs an id of 1 to %d bytes", registry.MaxName)
	}
	for _, k := range o.Keys {
		if len(k) != 16 && len(k) != 24 && len(k) != 32 {
			return bad("a gossip key has %d bytes; 16, 24 or 32 are possible", len(k))
		}
	}
	if o.Knobs == (Knobs{}) {
		o.Knobs = LAN()
	}
	if o.Bind == "" {
		o.Bind = "127.0.0.1:0"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Conflict == nil {
		o.Conflict = func(string, string) {}
	}
	if o.Stuck == nil {
		o.Stuck = func(string, time.Duration) {}
	}
	if m := (meta{API: o.API, Role: o.Role, Capability: o.Capability, Build: o.Build}).encode(); len(m) > 512 {
		return bad("role and API address take %d bytes; 512 is the most", len(m))
	}
	return nil
}
