package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// sample makes a small journal with all there is: branches, overflow pages, an inline bucket, deleted and replaced
// records, free pages. It gives the file's bytes and what it holds.
func sample(t testing.TB) ([]byte, map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j.db.AllocSize = 1 // keep the file small
	var batch []fsm.Record
	add := func(b, k, v string) { batch = append(batch, fsm.Record{Bucket: b, Key: k, Value: []byte(v)}) }
	for i := range 120 {
		add("machines", fmt.Sprintf("id-%04d", i), strings.Repeat("m", 10+i%150))
	}
	add("big", "k", strings.Repeat("b", 9000))
	add("inline", "k", "small")
	add("inline", "empty", "")
	if err := j.Commit(batch); err != nil {
		t.Fatal(err)
	}
	batch = nil
	for i := 0; i < 120; i += 3 {
		batch = append(batch, fsm.Record{Bucket: "machines", Key: fmt.Sprintf("id-%04d", i)})
	}
	add("machines", "id-0001", "replaced")
	if err := errors.Join(j.Commit(batch), j.Close()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := collect(raw)
	if err != nil || len(want) != 83 {
		t.Fatalf("%d records, %v", len(want), err)
	}
	m, err := readMetas(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return raw[:m.high*m.pageSize], want // what lies behind was never used
}

// collect gives all that verify finds in a file.
func collect(raw []byte) (map[string]string, error) {
	got := map[string]string{}
	_, err := verifyFile(bytes.NewReader(raw), int64(len(raw)),
		func(b, k string, v []byte) { got[b+"/"+k] = string(v) })
	return got, err
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

var every = flag.Int("every", 61, "TestFlippedBitIsRefusedOrHarmless flips every n-th bit; 1 for all")

// TestFlippedBitIsRefusedOrHarmless flips bits of a journal in turn: it is refused, or nothing that it holds has changed.
func TestFlippedBitIsRefusedOrHarmless(t *testing.T) {
	raw, want := sample(t)
	step, refused := *every, 0
	begin := rand.IntN(step)
	t.Logf("from bit %d", begin)
	for bit := begin; bit < len(raw)*8; bit += step {
		raw[bit/8] ^= 1 << (bit % 8)
		got, err := collect(raw)
		if err != nil {
			refused++
		} else if !equal(got, want) {
			t.Fatalf("byte %d, bit %d: accepted with %d other records", bit/8, bit%8, len(got))
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
	t.Logf("%d of %d flips are refused; the others lie in space that is not used", refused, len(raw)*8/step)
	if refused < len(raw)*8/step/10 {
		t.Errorf("too few: does it read the file?")
	}
}

// TestTruncatedJournalIsRefused cuts a journal after each byte.
func TestTruncatedJournalIsRefused(t *testing.T) {
	raw, _ := sample(t)
	for n := range len(raw) {
		if _, err := collect(raw[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes, it is accepted", n, len(raw))
		}
	}
}

// TestMissingRecordIsRefused takes a record out by bbolt's own means, as a damaged page count would.
func TestMissingRecordIsRefused(t *testing.T) {
	raw, _ := sample(t)
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("machines")).Delete([]byte("id-0001"))
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); fault.CodeOf(err) != "journal_damaged" ||
		!strings.Contains(err.Error(), "83 records") {
		t.Errorf("%v", err)
	}
}

// TestBranchPageWithoutKeyIsRefused: bbolt opens such a file, and panics at the first write below it.
func TestBranchPageWithoutKeyIsRefused(t *testing.T) {
	raw, _ := sample(t)
	found, refused := 0, 0
	for at := 0; at+pageHeader+element <= len(raw); at += 4096 {
		if e := raw[at+pageHeader:]; binary.NativeEndian.Uint16(raw[at+8:]) == flagBranch &&
			binary.NativeEndian.Uint32(e[4:]) > 0 {
			found++
			damaged := bytes.Clone(raw)
			binary.NativeEndian.PutUint32(damaged[at+pageHeader+4:], 0)
			if _, err := collect(damaged); err != nil {
				refused++
			}
		}
	}
	if refused == 0 { // a branch may be free again: then nobody reads it
		t.Fatalf("of %d branches without a key none is refused", found)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	raw := []byte{2, 0, 0, 0, 9, 9}
	_, err := parseState(raw)
	if e := fault.As(refuseFile(err, "journal")); e.Kind != fault.Precondition || e.Code != "journal_newer" {
		t.Errorf("%+v", e)
	}
}

// mend makes both meta pages whole again after their content was changed, so that the checks behind them are met.
func mend(raw []byte) {
	for at := 0; at <= 4096 && at+pageHeader+metaSize <= len(raw); at += 4096 {
		b := raw[at+pageHeader:]
		h := fnv.New64a()
		h.Write(b[:metaSize-8])
		binary.NativeEndian.PutUint64(b[metaSize-8:], h.Sum64())
	}
}

// accepted holds a file that verify accepts to this: bbolt opens it, checks it, and reads the same from it.
func accepted(t testing.TB, raw []byte, got map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	loaded := map[string]string{}
	err = j.Load(func(r fsm.Record) error { loaded[r.Bucket+"/"+r.Key] = string(r.Value); return nil })
	if err != nil || !equal(loaded, got) {
		t.Fatalf("verify found %d records and Load %d: %v", len(got), len(loaded), err)
	}
	if err := j.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("bbolt's own check: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Commit([]fsm.Record{{Bucket: "machines", Key: "new", Value: []byte("v")}}),
		j.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLongRandomDamageIsRefusedOrHarmless damages a journal more cleverly than a disk would: whole words, with the metas made good again.
func TestLongRandomDamageIsRefusedOrHarmless(t *testing.T) { randomDamage(t, 4000) }

// TestRandomDamageIsRefusedOrHarmless does it less often.
func TestRandomDamageIsRefusedOrHarmless(t *testing.T) { randomDamage(t, 500) }

func randomDamage(t *testing.T, rounds int) {
	whole, want := sample(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	opened := 0
	for range rounds {
		raw := append([]byte{}, whole...)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(raw)/8) * 8
			if random.IntN(3) == 0 { // the words that matter lie at the head of a page
				at = random.IntN(len(raw)/4096)*4096 + random.IntN(12)*8
			}
			v := []uint64{0, 1, 2, 3, 1 << 16, 1 << 31, 1 << 40, 1<<64 - 1, random.Uint64()}[random.IntN(9)]
			binary.NativeEndian.PutUint64(raw[at:], v)
		}
		mend(raw)
		if got, err := collect(raw); err == nil {
			if opened++; opened%50 == 0 { // opening costs fsyncs
				accepted(t, raw, got)
			}
			_ = want // an older root may rightly be chosen by a meta that was written over
		}
	}
	t.Logf("%d of %d damaged files could be opened", opened, rounds)
}

// FuzzOpenDamagedIsRefusedOrWhole writes over a journal: each 5 bytes of edits are an offset and a byte, then it is cut.
func FuzzOpenDamagedIsRefusedOrWhole(f *testing.F) {
	whole, want := sample(f)
	f.Add([]byte{}, uint32(0), false)
	f.Add([]byte{0, 0, 0, 24, 1}, uint32(0), true)
	f.Add([]byte{0, 0, 0x10, 40, 7, 0, 0, 0x20, 10, 1}, uint32(9), true)
	f.Fuzz(func(t *testing.T, edits []byte, cut uint32, mended bool) {
		raw := append([]byte{}, whole...)
		for ; len(edits) >= 5; edits = edits[5:] {
			raw[binary.BigEndian.Uint32(edits)%uint32(len(raw))] = edits[4]
		}
		if mended {
			mend(raw)
		}
		raw = raw[:len(raw)-int(cut%uint32(len(raw)+1))]
		got, err := collect(raw)
		switch {
		case err == nil && !mended && !equal(got, want):
			t.Fatalf("accepted with %d other records", len(got))
		case err == nil:
			accepted(t, raw, got)
		default:
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, Options{}); fault.CodeOf(err) != "journal_damaged" {
				t.Fatalf("open: %v", err)
			}
		}
	})
}
