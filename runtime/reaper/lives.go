package reaper

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// The lives file records for the next reaper what runs: one line per change, appended with one write(2), which survives
// kill -9 of the reaper. It is deliberately not fsynced: when the host itself goes down, every life ends with it and is
// reported as lost, for which the boot id in the first line is enough. (The exception are lives suspended to disk, see
// syncFile.)
//
// A line is a CRC-32 and JSON. A damaged line (the host went down while it was written) is skipped: the reaper reports
// what it knows, and the worker's journal is authoritative.

// The kinds of lines.
const (
	lineBoot    = "boot"    // ID: the boot that all following lines belong to; Tree, Dir, Node: see home
	lineSeen    = "seen"    // Machine, Attempt, At: the highest attempt, of a machine that may not run
	lineIntent  = "intent"  // Machine, Attempt, At: its program is about to run
	lineAbandon = "abandon" // Machine, Attempt: it did not run, as if never attempted
	lineRun     = "run"     // Machine, Attempt, Life
	lineFrozen  = "frozen"  // Machine, Attempt, Frozen
	lineExit    = "exit"    // Exit
	lineAck     = "ack"     // Machine, Attempt
	lineGone    = "gone"    // Machine was removed
	// Machine, Attempt, Frozen: its checkpoint is about to be written; if not Frozen, that was cancelled
	lineSaving = "saving"
	lineAsleep = "asleep" // Machine, Attempt: its checkpoint is complete
	lineWaking = "waking" // Machine, Attempt: it is about to be restored
)

type line struct {
	Kind    string        `json:"k"`
	ID      string        `json:"id,omitempty"`
	Tree    string        `json:"tree,omitempty"`
	Dir     string        `json:"dir,omitempty"`
	Node    string        `json:"node,omitempty"`
	Machine string        `json:"m,omitempty"`
	Attempt uint64        `json:"a,omitempty"`
	Life    *lifeRecord   `json:"l,omitempty"`
	Exit    *runtime.Exit `json:"x,omitempty"`
	Frozen  bool          `json:"f,omitempty"`
	At      time.Time     `json:"at,omitzero"` // start of the attempt
}

// lifeRecord is what a later reaper needs to find a running process.
type lifeRecord struct {
	PID       int       `json:"pid"`
	Ticks     uint64    `json:"t"` // start of the process, in ticks since boot
	StartedAt time.Time `json:"at"`
	UID       int       `json:"uid,omitempty"` // -1: the reaper's own user
	GID       int       `json:"gid,omitempty"`
	Groups    []uint32  `json:"gs,omitempty"`
	View      bool      `json:"v,omitempty"` // it sees its directory at the path in the view
	Out       uint64    `json:"o,omitempty"` // inode of the stdout pipe
	Err       uint64    `json:"e,omitempty"` // inode of the stderr pipe
	Paused    bool      `json:"p,omitempty"`
	Sleep     sleep     `json:"sl,omitempty"`
	Group     string    `json:"g,omitempty"`  // its cgroup; "" without cgroups
	BaseCPU   int64     `json:"bc,omitempty"` // nanoseconds of CPU counted by the group before this life
	BaseSlow  int64     `json:"bs,omitempty"` // nanoseconds throttled before this life
	BasePeak  int64     `json:"bp,omitempty"` // bytes that the group's peak must exceed to be of this life
	Container string    `json:"c,omitempty"`  // the OCI runtime's name for it; "": a process of the host
	Engine    string    `json:"en,omitempty"` // path of the OCI runtime
	Network   bool      `json:"nw,omitempty"` // it has its own network
	// the network as made; nil: not made yet
	Net      *netplan.Network `json:"net,omitempty"`
	V4       netip.Addr       `json:"v4,omitzero"`  // the container's IPv4 address
	Volumes  bool             `json:"vs,omitempty"` // it has volumes
	Stop     int              `json:"ss,omitempty"` // stop signal; 0: SIGINT
	Terminal bool             `json:"tt,omitempty"` // Out is the near end of its terminal, and Err is unused
	LogBytes int64            `json:"lb"`
	LogFiles int              `json:"lf"`

	Dir   string              `json:"d,omitempty"`  // that it started in, of the user's choice; "": its own
	Umask *uint32             `json:"um,omitempty"` // nil: the reaper's own
	Soft  []runtime.SoftLimit `json:"so,omitempty"` // empty: the reaper's own
}

// sleep is the progress of a life's suspension to disk, or of its restoration.
type sleep string

const (
	saving sleep = "saving" // its checkpoint is being written; when that is done, its process ends
	asleep sleep = "asleep" // it has a checkpoint and no process
	waking sleep = "waking" // it may have been restored, but its process is not recorded yet
)

// known is the state of one machine according to the lives file.
type known struct {
	seen    uint64
	started time.Time // start of attempt seen
	intent  uint64    // an attempt whose program may have run or not
	meant   time.Time // start of attempt intent
	life    *lifeRecord
	exits   map[uint64]runtime.Exit
}

// markLost records the attempt in intent as started and lost: whether it ran is unknown, so its number is used up.
// Without an intent it does nothing.
func (k *known) markLost(machine string, now time.Time) {
	if k.intent == 0 {
		return
	}
	if k.exits == nil {
		k.exits = make(map[uint64]runtime.Exit, 1)
	}
	k.exits[k.intent] = runtime.Exit{Machine: machine, Attempt: k.intent, Code: -1, Lost: true, At: now}
	k.seen, k.started, k.intent = k.intent, k.meant, 0
}

// lives is the open lives file.
type lives struct {
	path string

	mu    sync.Mutex
	file  *os.File
	size  int64
	ahead int64 // bytes of disk space allocated to the file
	lines int
	buf   []byte
}

// LivesFile is the name of the lives file in the reaper's directory.
const LivesFile = "lives"

// openLives reads the file and opens it for appending. was is its boot line: if its boot differs from the current one,
// the host has been down, and no recorded life runs any more.
func openLives(dir string) (l *lives, all map[string]*known, was line, err error) {
	l = &lives{path: filepath.Join(dir, LivesFile)}
	b, err := os.ReadFile(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, was, fmt.Errorf("read the lives file: %w", err)
	}
	all, was = replayLives(b)
	l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, was, fmt.Errorf("open the lives file: %w", err)
	}
	if len(b) > 0 && b[len(b)-1] != '\n' { // a torn last line must not merge with the next
		if _, err := l.file.Write([]byte("\n")); err != nil {
			return nil, nil, was, fmt.Errorf("mend the lives file: %w", err)
		}
		l.size++
	}
	l.size += int64(len(b))
	l.takeAhead()
	return l, all, was, nil
}

// replayLives applies all lines in order.
func replayLives(b []byte) (all map[string]*known, boot line) {
	all = make(map[string]*known)
	for raw := range bytes.Lines(b) {
		n, ok := decodeLine(raw)
		if !ok {
			continue
		}
		if n.Kind == lineBoot {
			boot = n
			continue
		}
		k := all[n.Machine]
		if k == nil {
			k = &known{exits: make(map[uint64]runtime.Exit)}
			all[n.Machine] = k
		}
		switch n.Kind {
		case lineSeen:
			k.seen, k.started = n.Attempt, n.At
		case lineIntent:
			k.intent, k.meant = n.Attempt, n.At
		case lineAbandon:
			k.intent = 0
		case lineRun:
			k.seen, k.intent, k.life = n.Attempt, 0, n.Life
			if n.Life != nil {
				k.started = n.Life.StartedAt
			}
		case lineFrozen:
			if k.life != nil && k.seen == n.Attempt { // it may have ended before this line was written
				k.life.Paused = n.Frozen
			}
		case lineSaving, lineAsleep, lineWaking:
			if k.life != nil && k.seen == n.Attempt {
				k.life.Sleep = sleepOf(n)
			}
		case lineExit:
			k.life = nil
			if n.Exit != nil {
				k.exits[n.Exit.Attempt] = *n.Exit
			}
		case lineAck:
			delete(k.exits, n.Attempt)
		case lineGone:
			delete(all, n.Machine)
		}
	}
	return all, boot
}

// sleepOf returns the state that a saving, asleep or waking line records.
func sleepOf(n line) sleep {
	switch {
	case n.Kind == lineAsleep:
		return asleep
	case n.Kind == lineWaking:
		return waking
	case n.Frozen:
		return saving
	}
	return ""
}

func decodeLine(raw []byte) (line, bool) {
	var n line
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(raw, []byte("\n")), []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !ok || err != nil || crc32.ChecksumIEEE(text) != uint32(want) {
		return n, false
	}
	return n, json.Unmarshal(text, &n) == nil
}

func encodeLine(b []byte, n line) ([]byte, error) {
	const sum = "00000000 "
	begin := len(b)
	b = append(b, sum...)
	text := begin + len(sum)
	if n.isPlain() {
		b = n.appendPlain(b)
	} else {
		enc, err := json.Marshal(n)
		if err != nil {
			return b[:begin], fmt.Errorf("encode a line of the lives file: %w", err)
		}
		b = append(b, enc...)
	}
	var crc [4]byte
	binary.BigEndian.PutUint32(crc[:], crc32.ChecksumIEEE(b[text:]))
	hex.Encode(b[begin:], crc[:])
	return append(b, '\n'), nil
}

// isPlain reports whether appendPlain can encode the line: the two lines that every start waits for are plain.
func (n line) isPlain() bool {
	if n.ID != "" || n.Exit != nil || n.Frozen || CheckID(n.Machine) != nil {
		return false
	}
	l := n.Life
	if l == nil {
		return n.Kind == lineIntent && plainTime(n.At)
	}
	return n.Kind == lineRun && n.At.IsZero() && len(l.Groups) == 0 && l.Umask == nil && len(l.Soft) == 0 &&
		l.Container == "" && !l.Terminal && l.Sleep == "" && (l.Group == "" || CheckID(l.Group) == nil) &&
		l.Dir == "" && plainTime(l.StartedAt)
}

// plainTime reports whether encoding/json and time.AppendFormat format a time alike.
func plainTime(t time.Time) bool {
	_, offset := t.Zone()
	return t.Year() >= 0 && t.Year() <= 9999 && offset%60 == 0
}

// appendPlain encodes a plain line exactly like encoding/json, at a fraction of the cost.
func (n line) appendPlain(b []byte) []byte {
	b = append(append(b, `{"k":"`...), n.Kind...)
	b = append(append(append(b, `","m":"`...), n.Machine...), '"')
	number := func(key string, v int64) {
		if v != 0 {
			b = strconv.AppendInt(append(b, key...), v, 10)
		}
	}
	count := func(key string, v uint64) {
		if v != 0 {
			b = strconv.AppendUint(append(b, key...), v, 10)
		}
	}
	count(`,"a":`, n.Attempt)
	at := func(t time.Time) { b = append(t.AppendFormat(append(b, `,"at":"`...), time.RFC3339Nano), '"') }
	l := n.Life
	if l == nil {
		if !n.At.IsZero() {
			at(n.At)
		}
		return append(b, '}')
	}
	b = strconv.AppendInt(append(b, `,"l":{"pid":`...), int64(l.PID), 10)
	b = strconv.AppendUint(append(b, `,"t":`...), l.Ticks, 10)
	at(l.StartedAt)
	number(`,"uid":`, int64(l.UID))
	number(`,"gid":`, int64(l.GID))
	if l.View {
		b = append(b, `,"v":true`...)
	}
	count(`,"o":`, l.Out)
	count(`,"e":`, l.Err)
	if l.Paused {
		b = append(b, `,"p":true`...)
	}
	if l.Group != "" {
		b = append(append(append(b, `,"g":"`...), l.Group...), '"')
	}
	number(`,"bc":`, l.BaseCPU)
	number(`,"bs":`, l.BaseSlow)
	number(`,"bp":`, l.BasePeak)
	b = strconv.AppendInt(append(b, `,"lb":`...), l.LogBytes, 10)
	b = strconv.AppendInt(append(b, `,"lf":`...), int64(l.LogFiles), 10)
	return append(b, "}}"...)
}

// appendLine appends one line.
func (l *lives) appendLine(n line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.buf, err = encodeLine(l.buf[:0], n); err != nil {
		return err
	}
	if l.size+int64(len(l.buf)) > l.ahead-livesAhead/2 {
		l.takeAhead()
	}
	wrote, err := l.file.Write(l.buf)
	if err != nil {
		if wrote > 0 { // half a line must not merge with the next
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		return fmt.Errorf("write the lives file: %w", err)
	}
	l.size += int64(wrote)
	l.lines++
	return nil
}

// syncFile makes the file survive a crash of the host. It is called for lives that survive one, those on disk.
func (l *lives) syncFile() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync the lives file: %w", err)
	}
	return nil
}

// livesAhead is how much disk space is allocated beyond the file's end, so that machines can be stopped and removed
// when the disk is full.
const livesAhead = 256 << 10

// takeAhead allocates disk space for future lines. If that fails, each line allocates its own.
func (l *lives) takeAhead() {
	l.ahead = l.size + livesAhead
	_ = unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, l.ahead)
}

// needsRewrite reports whether most lines of the file are outdated.
func (l *lives) needsRewrite(machines int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines > 4096+8*machines
}

// rewriteFile replaces the file by one with these lines. The caller must prevent concurrent additions.
func (l *lives) rewriteFile(now []line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b []byte
	var err error
	for _, n := range now {
		if b, err = encodeLine(b, n); err != nil {
			return err
		}
	}
	tmp := l.path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite the lives file: %w", err)
	}
	outlive := slices.ContainsFunc(now, func(n line) bool { return n.Life != nil && n.Life.Sleep != "" })
	if _, err = f.Write(b); err == nil && outlive {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, l.path)
	}
	if err == nil && outlive {
		err = syncPath(filepath.Dir(l.path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("rewrite the lives file: %w", err), f.Close(), os.Remove(tmp))
	}
	old := l.file
	l.file, l.lines, l.size = f, 0, int64(len(b))
	l.takeAhead()
	return old.Close()
}

func (l *lives) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
