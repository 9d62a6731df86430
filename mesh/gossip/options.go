package gossip

import (
	"context"
	"log/slog"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// Puller asks a member for what we lack: one question, one answer. The wire gives one over mTLS; without it the
// gossip's own is used, sealed with the gossip key. The answer is believed to be member's.
type Puller interface {
	Pull(ctx context.Context, member cluster.Member, d registry.Digest) (registry.Delta, error)
}

// Options says what a member is to be.
type Options struct {
	Self        cluster.WorkerID
	Incarnation uint64        // at least; what was saved in Dir and what others remember of us may make it greater
	Role        string        // "worker", "gateway"
	API         string        // address of the member's API, as others reach it
	Capability  int           // the dated number of what it speaks
	Build       cluster.Build // that the others are told
	Bind        string        // host:port for packets and streams; port 0 takes a free one
	Advertise   string        // host:port as others reach it; "": as bound
	// of 16, 24 or 32 bytes; the first encrypts, all decrypt. Empty: nothing is encrypted; see SetKeys
	Keys [][]byte

	KeysGeneration int // of Keys; others are told it

	Dir      string   // where members and objects are kept over restarts; "": nowhere
	Peers    []string // host:port of members to join at the beginning, beside those that are saved
	Knobs    Knobs
	Puller   Puller                        // nil: our own
	Sign     func(signed []byte) []byte    // is called from several goroutines at once
	Verify   registry.Verify               // where it is set, nothing is believed that is not signed
	May      func(x registry.Object) error // says why this member may not write an object; nil: it may
	Registry registry.Options
	Log      *slog.Logger // nil: silent
	// Conflict is told that somebody is alive with our name at another address, and where its API is. It must not wait.
	Conflict func(addr, api string)
	Stuck    func(consumer string, since time.Duration) // a consumer or a loop does not move; nil: only logged
}

// Knobs are the times and amounts of the protocol.
type Knobs struct {
	Probe        time.Duration // between probes of one member after another
	ProbeTimeout time.Duration // until other members are asked to probe as well
	Indirect     int           // how many of them
	Suspicion    int           // multiplier of the time from suspicion to death; see memberlist.Config
	SuspicionMax int
	Reprobe      time.Duration // between questions to members that we suspect
	Retransmit   int           // multiplier of how often members repeat what memberlist itself tells
	Gossip       time.Duration // between repetitions
	Push         int           // members that one member passes a change on to
	// the shortest that an acknowledgement of a change is waited for; slower round trips make it longer
	Patience   time.Duration
	Fanout     int           // members told by each repetition
	PushPull   time.Duration // between memberlist's own full exchanges
	Sync       time.Duration // between pulls that have no occasion
	Settle     time.Duration // how long a difference may mend itself before it is pulled
	Flush      time.Duration // for how long changes are coalesced
	Rate       int           // bytes a second that we begin to broadcast; what is beyond waits and is coalesced
	Reconnect  time.Duration // between tries to reach a member that is gone
	Save       time.Duration // between savings of the members, when they changed
	StuckAfter time.Duration // until a consumer that does not read counts as stuck
	// Lost is how long a member is not heard until what it had is taken for lost, where nobody says another time.
	Lost time.Duration
}

// LAN returns the defaults. A dead worker is noticed by all within 3 s up to some thousand members: memberlist's
// suspicion lasts longer the more there are, by the logarithm, and the pace leaves room for that. See
// docs/decisions/0010-registry.md.
func LAN() Knobs {
	return Knobs{Probe: 170 * time.Millisecond, ProbeTimeout: 80 * time.Millisecond, Indirect: 6, Suspicion: 3,
		SuspicionMax: 6, Retransmit: 8, Reprobe: 350 * time.Millisecond,
		Gossip: 80 * time.Millisecond, Push: 4, Patience: 20 * time.Millisecond, Fanout: 3,
		PushPull: 30 * time.Second, Sync: 15 * time.Second, Settle: 100 * time.Millisecond,
		Flush: 5 * time.Millisecond, Rate: 32 << 10, Reconnect: 5 * time.Second, Save: 10 * time.Second,
		StuckAfter: 10 * time.Second, Lost: 3 * time.Second}
}

// WAN returns the pace for members that answer late: over slow links, or many on a host with few cores. A probe may
// take half a second, a third of which LAN allows. A death is noticed in 3 to 7 s by some hundred members.
func WAN() Knobs {
	k := LAN()
	k.Probe, k.ProbeTimeout, k.Gossip, k.Reprobe = 500*time.Millisecond, 250*time.Millisecond, 200*time.Millisecond,
		time.Second
	k.Patience, k.Lost = 150*time.Millisecond, 10*time.Second
	return k
}

// Paces are the names of the settings that can be chosen. All members of a cluster should have one: each judges by
// its own.
var Paces = map[string]func() Knobs{"lan": LAN, "wan": WAN} //nolint:gochecknoglobals // a constant

// The bounds of a member.
const (
	inboxSize   = 4096 // broadcasts that wait to be taken in; more are dropped and found by a pull
	packetSize  = 1400 // bytes of a packet
	messageSize = 1150 // bytes of a broadcast: a packet less memberlist's and the cipher's
	spreadSize  = 1280 // bytes of the broadcasts in one packet
	takeMost    = 64   // packets of broadcasts taken in at once
	pullSize    = 256 << 10
	pullRounds  = 64   // questions of one exchange
	maxGone     = 1024 // members remembered that are gone
	maxAnswers  = 64   // questions of members that are answered at once
	maxLarge    = 32   // streams of more than smallStream bytes that are read at once
	smallStream = 64 << 10
	firstTime   = time.Second // for the first byte of a stream
	newsRuns    = 4           // packets of one flush; what does not fit is pulled
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
