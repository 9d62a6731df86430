// Package sent keeps what users send for the tasks of their jobs: files and directories, each as one archive under the
// digest of its content. A member that a user sends to keeps the archive; a worker whose tasks need it unpacks it once,
// and each task gets hard links to the files, which nobody can change.
//
// What is sent belongs to an app: knowing a digest is of no use in another one.
//
//	DIR/archives/APP/HEX       an archive that a user sent here, or that this member keeps for another
//	DIR/trees/APP/HEX/NAME     the same, unpacked; removed with its archive
//	DIR/new                    what is not complete
//	DIR/boot                   the boot of the host that the trees were unpacked in
package sent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of what is kept.
const (
	MaxEntries = 100_000   // files and directories of one archive
	MaxBytes   = 256 << 30 // of one archive
	keepFree   = 2 << 30   // bytes of the disk that are left to others
	// keepFor is how long what no unfinished job needs is kept after its last use, so that it need not be sent again.
	keepFor    = 14 * 24 * time.Hour
	keepPinned = time.Hour        // what was used so recently is not removed for others: its job may be on its way
	fetchTime  = 30 * time.Minute // for one archive from another member
	checkEvery = 64 << 20         // bytes after which it is seen whether the disk has room
	copyBuffer = 1 << 20
)

// Key names one archive.
type Key struct {
	App    string
	Digest string // "sha256:..."
}

func (k Key) hex() string { return strings.TrimPrefix(k.Digest, "sha256:") }

// Check refuses keys that could not be the path of an archive.
func (k Key) Check() error {
	raw, err := hex.DecodeString(k.hex())
	if err != nil || len(raw) != sha256.Size || k.Digest != "sha256:"+k.hex() || strings.ToLower(k.hex()) != k.hex() {
		return fault.New(fault.Invalid, codeDigest, "what is sent has the digest of its archive, sha256: and 64 "+
			"hexadecimal digits, not %.80q", k.Digest)
	}
	if !machine.ValidName(k.App) {
		return fault.New(fault.Invalid, codeDigest, "%.80q is no name of an app", k.App)
	}
	return nil
}

// Options are what a store is made of.
type Options struct {
	Dir string // made if it does not exist
	// Fetch writes another member's archive to w; nil: there are no other members.
	Fetch func(ctx context.Context, from cluster.WorkerID, k Key, w io.Writer) error
	// InUse lists what unfinished jobs need, as far as this member knows; nil: nothing.
	InUse func(ctx context.Context) ([]Key, error)
	// Boot is that of the host: trees of an earlier one are unpacked anew, since they may not be whole on the disk.
	Boot string
	Log  *slog.Logger // nil: nothing is logged
}

// Store keeps archives. Its methods may be called from many goroutines.
type Store struct {
	o   Options
	log *slog.Logger

	mu        sync.Mutex
	users     map[Key]int           // how many use it now
	unpacking map[Key]chan struct{} // closed when whoever unpacks it is done
}

// Open opens a store, and removes what is not complete.
func Open(o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, log: o.Log, users: map[Key]int{}, unpacking: map[Key]chan struct{}{}}
	err := errors.Join(os.MkdirAll(o.Dir, 0o700), os.RemoveAll(s.path("new")), s.dropOldTrees())
	for _, dir := range []string{"archives", "trees", "new"} {
		err = errors.Join(err, os.MkdirAll(s.path(dir), 0o700))
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Precondition, fault.CodeDir,
			"the directory %s of what jobs are sent cannot be used", o.Dir)
	}
	return s, nil
}

// dropOldTrees removes the trees of an earlier boot of the host.
func (s *Store) dropOldTrees() error {
	was, err := os.ReadFile(s.path("boot"))
	if err == nil && string(was) == s.o.Boot {
		return nil
	}
	if err := os.RemoveAll(s.path("trees")); err != nil {
		return err
	}
	return os.WriteFile(s.path("boot"), []byte(s.o.Boot), 0o600)
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

func (s *Store) archive(k Key) string { return s.path("archives", k.App, k.hex()) }
func (s *Store) tree(k Key) string    { return s.path("trees", k.App, k.hex()) }

// Size returns the size of an archive, and whether it is here; it then stays for a while.
func (s *Store) Size(k Key) (bytes int64, here bool) {
	if k.Check() != nil {
		return 0, false
	}
	st, err := os.Lstat(s.archive(k))
	if err != nil || !st.Mode().IsRegular() {
		return 0, false
	}
	s.touch(s.archive(k))
	return st.Size(), true
}

// touch notes that something was used now.
func (s *Store) touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now) // it is only kept for less long
}

// Put stores an archive that r delivers. It is Invalid if it is not in an archive's form, or has another digest.
func (s *Store) Put(ctx context.Context, k Key, r io.Reader) (bytes int64, err error) {
	if err := k.Check(); err != nil {
		return 0, err
	}
	if bytes, here := s.Size(k); here {
		return bytes, nil
	}
	f, err := os.CreateTemp(s.path("new"), "archive-")
	if err != nil {
		return 0, diskError(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	to := &measured{ctx: ctx, store: s, w: io.MultiWriter(sum, f)}
	if err := checkArchive(io.TeeReader(&limited{r: r}, to)); err != nil {
		return 0, to.cause(err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != k.Digest {
		return 0, fault.New(fault.Conflict, codeDigest, "what came has the digest %s, not %s: it was changed while it "+
			"was sent; send it again", got, k.Digest)
	}
	// it must outlast a crash before a job that needs it is accepted
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return 0, diskError(err)
	}
	if err := os.MkdirAll(filepath.Dir(s.archive(k)), 0o700); err != nil {
		return 0, diskError(err)
	}
	if err := os.Rename(f.Name(), s.archive(k)); err != nil {
		return 0, diskError(err)
	}
	if err := syncDir(filepath.Dir(s.archive(k))); err != nil {
		return 0, diskError(err)
	}
	return to.n, nil
}

// Read writes an archive to w.
func (s *Store) Read(ctx context.Context, k Key, w io.Writer) error {
	if err := k.Check(); err != nil {
		return err
	}
	f, err := os.Open(s.archive(k))
	if errors.Is(err, fs.ErrNotExist) {
		return missing(k)
	}
	if err != nil {
		return diskError(err)
	}
	defer f.Close()
	s.touch(s.archive(k))
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	_, err = io.CopyBuffer(w, f, make([]byte, copyBuffer))
	return err
}

// Secure makes sure that an archive is here, and fetches it from another member if it is not.
func (s *Store) Secure(ctx context.Context, k Key, from cluster.WorkerID) error {
	if err := k.Check(); err != nil {
		return err
	}
	if _, here := s.Size(k); here {
		return nil
	}
	return s.fetch(ctx, k, from, func(r io.Reader) error {
		_, err := s.Put(ctx, k, r)
		return err
	})
}

// fetch gives f the archive as another member sends it.
func (s *Store) fetch(ctx context.Context, k Key, from cluster.WorkerID, f func(io.Reader) error) error {
	if s.o.Fetch == nil {
		return missing(k)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := s.o.Fetch(ctx, from, k, pw)
		pw.CloseWithError(err) // never fails
		sent <- err
	}()
	err := f(pr)
	pr.CloseWithError(errDone) // never fails
	if cause := <-sent; cause != nil && !errors.Is(cause, errDone) {
		return cause // why the archive was not complete
	}
	return err
}

// errDone ends a fetch of which nothing more is read.
var errDone = errors.New("nothing more is read")

// Tree returns the directory with an unpacked archive, and what is called when it is not used any more. An archive that
// is not here is fetched from one of the members at, once for all who ask at the same time.
func (s *Store) Tree(ctx context.Context, k Key, at []cluster.WorkerID) (dir string, release func(), err error) {
	if err := k.Check(); err != nil {
		return "", nil, err
	}
	for {
		s.mu.Lock()
		s.users[k]++
		release = sync.OnceFunc(func() { s.release(k) })
		if _, err := os.Lstat(s.tree(k)); err == nil {
			s.mu.Unlock()
			s.touch(s.tree(k))
			return s.tree(k), release, nil
		}
		unpacked := s.unpacking[k]
		if unpacked == nil {
			done := make(chan struct{})
			s.unpacking[k] = done
			s.mu.Unlock()
			err := s.unpack(ctx, k, at)
			s.mu.Lock()
			delete(s.unpacking, k)
			close(done)
			s.mu.Unlock()
			if err != nil {
				release()
				return "", nil, err
			}
			return s.tree(k), release, nil
		}
		s.mu.Unlock()
		release()
		select {
		case <-unpacked:
		case <-ctx.Done():
			return "", nil, fault.Wrap(context.Cause(ctx), fault.Timeout, "", "what the job was sent did not come in "+
				"time")
		}
	}
}

func (s *Store) release(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[k]--; s.users[k] == 0 {
		delete(s.users, k)
	}
}

// unpack makes the tree of an archive, of this member or of one of at.
func (s *Store) unpack(ctx context.Context, k Key, at []cluster.WorkerID) error {
	if f, err := os.Open(s.archive(k)); err == nil {
		defer f.Close()
		s.touch(s.archive(k))
		return s.unpackFrom(ctx, k, f)
	}
	errs := []error{missing(k)}
	for _, from := range at {
		err := s.fetch(ctx, k, from, func(r io.Reader) error { return s.unpackFrom(ctx, k, r) })
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", from, err))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	last := errs[len(errs)-1]
	kind := fault.KindOf(last)
	if kind == fault.NotFound || kind == fault.Conflict {
		kind = fault.Unavailable // another worker may have it
	}
	return fault.Wrap(last, kind, codeMissing, "what the job was sent (%s) could not be had from %d members", k.Digest,
		len(errs)-1)
}

// unpackFrom makes the tree of an archive that r delivers.
func (s *Store) unpackFrom(ctx context.Context, k Key, r io.Reader) error {
	dir, err := os.MkdirTemp(s.path("new"), "tree-")
	if err != nil {
		return diskError(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return diskError(err)
	}
	sum := sha256.New()
	to := &measured{ctx: ctx, store: s, w: sum}
	if err := unpackArchive(ctx, io.TeeReader(&limited{r: r}, to), dir); err != nil {
		return to.cause(diskError(err))
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != k.Digest {
		return fault.New(fault.Conflict, codeDigest, "what came has the digest %s, not %s", got, k.Digest)
	}
	if err := os.MkdirAll(filepath.Dir(s.tree(k)), 0o700); err != nil {
		return diskError(err)
	}
	if err := os.Rename(dir, s.tree(k)); err != nil && !errors.Is(err, fs.ErrExist) {
		return diskError(err)
	}
	s.touch(s.tree(k))
	return nil
}

func missing(k Key) error {
	return fault.New(fault.NotFound, codeMissing, "this member does not have %s of app %s; send it first", k.Digest,
		k.App)
}

func diskError(err error) error {
	if _, is := errors.AsType[*fault.Error](err); is || err == nil {
		return err
	}
	kind := fault.Unavailable
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		kind = fault.Exhausted
	}
	return fault.Wrap(err, kind, fault.CodeDisk, "what the job was sent cannot be written to the disk")
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// limited refuses to read more than MaxBytes.
type limited struct {
	r io.Reader
	n int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.n += int64(n); l.n > MaxBytes {
		return 0, fault.New(fault.Invalid, fault.CodeTooLarge, "an archive has at most %d GiB; send less, or name "+
			"files of a shared directory", MaxBytes>>30)
	}
	return n, err
}

// measured counts what passes, and ends when the disk is about to be full, or ctx has ended.
type measured struct {
	ctx   context.Context //nolint:containedctx // of one call
	store *Store
	w     io.Writer
	n     int64
	next  int64
	err   error
}

func (m *measured) Write(p []byte) (int, error) {
	if m.n >= m.next {
		m.next = m.n + checkEvery
		if m.err = m.store.freeSpace(m.ctx); m.err != nil {
			return 0, m.err
		}
	}
	if m.ctx.Err() != nil {
		m.err = fault.Wrap(context.Cause(m.ctx), fault.Timeout, "", "what the job was sent did not come in time")
		return 0, m.err
	}
	n, err := m.w.Write(p)
	m.n += int64(n)
	if err != nil {
		m.err = diskError(err)
	}
	return n, err
}

// cause returns why writing ended early, if that is why err came.
func (m *measured) cause(err error) error {
	if m.err != nil {
		return m.err
	}
	return err
}
