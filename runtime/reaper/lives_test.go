package reaper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/store/disk/disktest"
)

func encoded(t testing.TB, lines ...line) []byte {
	t.Helper()
	var b []byte
	var err error
	for _, n := range lines {
		if b, err = encodeLine(b, n); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// story is one of everything.
func story() []line {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	life := &lifeRecord{PID: 77, Ticks: 1234, StartedAt: at, UID: -1, LogBytes: 1, LogFiles: 2}
	return []line{
		{Kind: lineBoot, ID: "boot"},
		{Kind: lineIntent, Machine: "a", Attempt: 1},
		{Kind: lineRun, Machine: "a", Attempt: 1, Life: life},
		{Kind: lineFrozen, Machine: "a", Attempt: 1, Frozen: true},
		{Kind: lineIntent, Machine: "b", Attempt: 1},
		{Kind: lineAbandon, Machine: "b", Attempt: 1},
		{Kind: lineIntent, Machine: "c", Attempt: 4},
		{Kind: lineRun, Machine: "c", Attempt: 4, Life: life},
		{Kind: lineExit, Machine: "c", Attempt: 4, Exit: &runtime.Exit{Machine: "c", Attempt: 4, Code: 3, At: at}},
		{Kind: lineFrozen, Machine: "c", Attempt: 4, Frozen: true}, // written late
		{Kind: lineIntent, Machine: "c", Attempt: 5, At: at},
		{Kind: lineRun, Machine: "d", Attempt: 1, Life: life},
		{Kind: lineExit, Machine: "d", Attempt: 1, Exit: &runtime.Exit{Machine: "d", Attempt: 1, Code: 3, At: at}},
		{Kind: lineAck, Machine: "d", Attempt: 1},
		{Kind: lineRun, Machine: "e", Attempt: 1, Life: life},
		{Kind: lineGone, Machine: "e"},
	}
}

func TestReplayRebuildsLives(t *testing.T) {
	all, boot := replayLives(encoded(t, story()...))
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	want := map[string]*known{
		"a": {seen: 1, started: at, life: &lifeRecord{PID: 77, Ticks: 1234, StartedAt: at, UID: -1, LogBytes: 1,
			LogFiles: 2, Paused: true}},
		"b": {},
		"c": {seen: 4, started: at, intent: 5, meant: at,
			exits: map[uint64]runtime.Exit{4: {Machine: "c", Attempt: 4, Code: 3, At: at}}},
		"d": {seen: 1, started: at},
	}
	if d := cmp.Diff(want, all, cmp.AllowUnexported(known{}), cmpopts.EquateEmpty(),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" || boot.ID != "boot" {
		t.Errorf("boot %q (-want +got):\n%s", boot.ID, d)
	}
}

// TestRewriteKeepsStartIntents: a rewrite of the file between an intent and its fork does not lose the intent, and an
// attempt that ended keeps the time of its start.
func TestRewriteKeepsStartIntents(t *testing.T) {
	dir := t.TempDir()
	file, _, _, err := openLives(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	r := &Reaper{dir: dir, lives: file, rewrite: make(chan struct{}, 1), machines: map[string]*machine{
		"a": {id: "a", seen: 3, started: at, intent: 4, meant: at.Add(time.Second)},
	}}
	if err := r.rewriteLives(); err != nil {
		t.Fatal(err)
	}
	_, all, _, err := openLives(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := all["a"]
	if a == nil || a.seen != 3 || !a.started.Equal(at) || a.intent != 4 {
		t.Fatalf("%+v, want attempt 3 seen and 4 about to be forked", a)
	}
	a.markLost("a", at.Add(time.Minute))
	if a.seen != 4 || a.intent != 0 || !a.started.Equal(at.Add(time.Second)) || !a.exits[4].Lost {
		t.Errorf("%+v, want attempt 4 lost", a)
	}
}

// TestTornLivesFileReadsToTheLastLine: cut off anywhere, the file is read up to the last whole line, and can be gone on with.
func TestTornLivesFileReadsToTheLastLine(t *testing.T) {
	b := encoded(t, story()...)
	for n := range len(b) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, LivesFile), b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l, before, _, err := openLives(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.appendLine(line{Kind: lineSeen, Machine: "z", Attempt: 9}); err != nil {
			t.Fatal(err)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		_, after, _, err := openLives(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(after) != len(before)+1 || after["z"] == nil || after["z"].seen != 9 {
			t.Fatalf("cut at %d: %d machines before, %d after", n, len(before), len(after))
		}
	}
}

// FuzzReplayNeverFails: no content of the file makes the reaper fall over.
func FuzzReplayNeverFails(f *testing.F) {
	f.Add(encoded(f, story()...))
	f.Add([]byte("\n\n00000000 {}\nx"))
	f.Add([]byte("fe87d8c1 null\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := replayLives(b)
		for id, k := range all {
			if k == nil {
				t.Fatalf("%q is nil", id)
			}
		}
	})
}

func TestCheckIDRefusesUnsafeIDs(t *testing.T) {
	for _, id := range []string{"a", "0", "148ed21a3e1289", strings.Repeat("z", 64)} {
		if err := CheckID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "/a", "a\n", "A", "-", "a-b", strings.Repeat("z", 65)} {
		if err := CheckID(id); err == nil {
			t.Errorf("%q is taken", id)
		}
	}
}

func TestRelativeStaysBelowItsRoot(t *testing.T) {
	for p, want := range map[string]string{
		"/etc/x": "etc/x", "etc/x": "etc/x", "///x": "x", "/a/./b//c": "a/b/c", "a/../b": "b",
		"": "", "/": "", ".": "", "..": "", "/..": "", "../x": "", "a/../../b": "", "/a/../..": "", "a\x00": "",
	} {
		got, err := relativePath(p, "file")
		if (err != nil) != (want == "") || got != want {
			t.Errorf("%q gives %q, %v; want %q", p, got, err, want)
		}
	}
}

// TestPlainLinesMatchEncodingJSON: a line that is encoded by hand is, to the byte, the one that encoding/json makes.
func TestPlainLinesMatchEncodingJSON(t *testing.T) {
	text := rapid.StringMatching(`[a-z0-9]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		n := line{
			Kind:    rapid.SampledFrom([]string{lineIntent, lineRun}).Draw(t, "kind"),
			Machine: text.Draw(t, "machine"),
			Attempt: rapid.Uint64().Draw(t, "attempt"),
		}
		zone := time.FixedZone("", 60*rapid.IntRange(-12*60, 14*60).Draw(t, "zone"))
		at := time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "at"),
			rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
		if n.Kind == lineIntent && rapid.Bool().Draw(t, "dated") {
			n.At = at.In(zone)
		}
		if n.Kind == lineRun {
			n.Life = &lifeRecord{
				PID: rapid.Int().Draw(t, "pid"), Ticks: rapid.Uint64().Draw(t, "ticks"),
				StartedAt: at.In(zone),
				UID:       rapid.IntRange(-1, 3).Draw(t, "uid"), GID: rapid.IntRange(-1, 3).Draw(t, "gid"),
				Out: rapid.Uint64().Draw(t, "out"), Err: rapid.Uint64().Draw(t, "err"),
				Paused: rapid.Bool().Draw(t, "paused"), Group: rapid.SampledFrom([]string{"", "s12"}).Draw(t, "group"),
				BaseCPU: rapid.Int64().Draw(t, "cpu"), BaseSlow: rapid.Int64().Draw(t, "slow"),
				BasePeak: rapid.Int64().Draw(t, "peak"),
				LogBytes: rapid.Int64().Draw(t, "log"), LogFiles: rapid.Int().Draw(t, "files"),
			}
		}
		if !n.isPlain() {
			t.Fatalf("%+v is not encoded by hand", n)
		}
		want, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.appendPlain(nil); string(got) != string(want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// TestUnusualLinesFallBackToEncodingJSON: what by hand would come out otherwise than encoding/json makes it, or not at all, is not done by hand.
func TestUnusualLinesFallBackToEncodingJSON(t *testing.T) {
	for _, n := range append(story(),
		line{Kind: lineIntent, Machine: `a"b`},
		line{Kind: lineRun, Machine: "a", Life: &lifeRecord{Groups: []uint32{7}}},
		line{Kind: lineRun, Machine: "a", Life: &lifeRecord{Umask: new(uint32)}},
		line{Kind: lineRun, Machine: "a", Life: &lifeRecord{Soft: []runtime.SoftLimit{{Resource: "core"}}}},
		line{Kind: lineRun, Machine: "a", Life: &lifeRecord{Group: `<s>`}},
		line{Kind: lineRun, Machine: "a", Life: &lifeRecord{}},
	) {
		want, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.TrimSuffix(encoded(t, n), []byte("\n"))
		if _, text, _ := bytes.Cut(got, []byte(" ")); string(text) != string(want) {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
}

// TestLivesFileSurvivesAFullDisk: machines are ended and removed when the disk has no byte left, and a line that was written half
// hides none that comes after it.
func TestLivesFileSurvivesAFullDisk(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "1m")
	l, _, _, err := openLives(dir)
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	added := 0
	for err = nil; err == nil; added++ {
		err = l.appendLine(line{Kind: lineSeen, Machine: fmt.Sprint("m", added), Attempt: 1})
	}
	added--
	if !errors.Is(err, unix.ENOSPC) || added < 1000 {
		t.Errorf("%d lines were written on a full disk, then: %v", added, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := l.appendLine(line{Kind: lineSeen, Machine: "last", Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	again, all, _, err := openLives(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != added+1 || all["last"] == nil {
		t.Errorf("%d machines are known, and the last is %+v; %d lines were written", len(all), all["last"], added+1)
	}
	if err := again.close(); err != nil {
		t.Fatal(err)
	}
}
