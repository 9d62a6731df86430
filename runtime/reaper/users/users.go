// Package users gives each machine a user of its own: a number that no person and no other machine of the host has.
//
// A worker owns a range of numbers, which it claims once among all workers of the host and records in its directory. It
// hands them out in turn, so that a number is reused only after all others, and only when no file belongs to it any
// more. Which numbers are taken is known from the owners of the machines' directories.
package users

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeHandOver fault.Code = "hand_over" // the directory cannot be given to the user
	codeUsers    fault.Code = "users"     // no user is available for the machine
)

// The numbers of machines. People, systemd's dynamic users, its containers and subordinate users have none of them.
const (
	First  = 0x70000000
	size   = 1 << 17 // of one range
	ranges = (0x7F000000 - First) / size
	block  = 1 << 12 // numbers that are cleaned up together
)

// Is reports whether a number is one for machines, of this worker or another: all numbers from First on are reserved
// for them.
func Is(uid int) bool { return uid >= First }

// ClaimsDir is where the workers of a host record which ranges they own.
const ClaimsDir = "/var/lib/souk-users"

// recordFile is the worker's own record, in its directory.
const recordFile = "users"

// record is what a worker remembers between its runs.
type record struct {
	Range int  `json:"range"`
	Block int  `json:"block"` // the block that numbers were last taken from
	Again bool `json:"again"` // the range was in use before: files of its numbers must be looked for
}

// Pool is the numbers of one worker.
type Pool struct {
	dir   string
	sweep func(low, high int) error // gives to root all files whose owner is in the range and has no machine

	mu    sync.Mutex
	rec   record
	next  int            // within the block
	swept map[int]*sweep // by block
	used  map[int]bool
}

// sweep is one search for leftover files.
type sweep struct {
	done chan struct{}
	err  error
}

// Open claims a range for the worker of dir, or finds the one that it already has. used are the numbers of its
// machines.
func Open(dir string, used []int) (*Pool, error) { return openPool(dir, ClaimsDir, used, nil) }

func openPool(dir, claims string, used []int, look func(low, high int) error) (*Pool, error) {
	p := &Pool{dir: dir, sweep: look, swept: make(map[int]*sweep), used: make(map[int]bool, len(used))}
	if look == nil {
		p.sweep = func(low, high int) error { return Disown(low, high, p.isMachineUser) }
	}
	for _, u := range used {
		p.used[u] = true
	}
	if err := p.claimRange(claims); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeUsers,
			"machines cannot get users of their own, because %s cannot be written; make it writable, or name the "+
				"machines' user with --user", claims)
	}
	if err := p.nextBlock(); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeUsers, "the users of machines cannot be saved in %s",
			dir)
	}
	return p, nil
}

// claimRange finds a range for this worker alone. A claim is a symbolic link from the range's number to the owner's
// directory; a link that leads nowhere is no claim.
func (p *Pool) claimRange(claims string) error {
	if err := os.MkdirAll(claims, 0o700); err != nil {
		return err
	}
	d, err := os.Open(claims)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil { // until d is closed
		return err
	}
	had, err := readRecord(p.dir)
	if err == nil && (had.Range < 0 || had.Range >= ranges) {
		err = errors.New("the file of users is damaged")
	}
	if err == nil {
		got, _, err := p.tryRange(claims, had.Range)
		if p.rec = had; got || err != nil {
			return err
		}
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(p.dir))
	for i := range ranges {
		n := (int(h.Sum32()%ranges) + i) % ranges
		got, again, err := p.tryRange(claims, n)
		if err != nil {
			return err
		}
		if got {
			p.rec = record{Range: n, Block: -1, Again: again}
			return p.saveRecord()
		}
	}
	return fmt.Errorf("all %d ranges are taken by other workers of this host", ranges)
}

// tryRange claims one range. again reports that it was in use before.
func (p *Pool) tryRange(claims string, n int) (got, again bool, err error) {
	name := filepath.Join(claims, strconv.Itoa(n))
	holder, err := os.Readlink(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, false, os.Symlink(p.dir, name)
	case err != nil:
		return false, false, err
	case holder == p.dir:
		return true, true, nil
	}
	// The copy of a worker's directory has the worker's record, but not its claim.
	if has, err := readRecord(holder); err == nil && has.Range == n || hasProcess(First+n*size, First+(n+1)*size) {
		return false, false, nil
	}
	if err := os.Remove(name); err != nil {
		return false, false, err
	}
	return true, true, os.Symlink(p.dir, name)
}

// hasProcess reports whether a process runs as one of these users. Its worker's directory may have been removed or
// moved.
func hasProcess(low, high int) bool {
	es, err := os.ReadDir("/proc")
	if err != nil {
		return true // not known
	}
	for _, e := range es {
		if !strings.ContainsAny(e.Name()[:1], "123456789") {
			continue
		}
		if st, err := os.Stat(filepath.Join("/proc", e.Name())); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) >= low && int(sys.Uid) < high {
				return true
			}
		}
	}
	return false
}

func readRecord(dir string) (rec record, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return rec, err
	}
	return rec, json.Unmarshal(raw, &rec)
}

// saveRecord writes the record so that it survives a crash of the host.
func (p *Pool) saveRecord() error {
	raw, err := json.Marshal(p.rec)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, recordFile)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// nextBlock moves on to the next block. The caller holds p.mu, or nobody else has the pool yet.
func (p *Pool) nextBlock() error {
	was := p.rec
	p.rec.Block++
	if p.rec.Block >= size/block {
		p.rec.Block, p.rec.Again = 0, true
	}
	if err := p.saveRecord(); err != nil {
		p.rec = was
		return err
	}
	p.next = 0
	p.lookLocked(p.rec.Block)
	return nil
}

// lookLocked starts the search for leftover files of a block's numbers, unless it was started already.
func (p *Pool) lookLocked(b int) {
	if p.swept[b] != nil {
		return
	}
	s := &sweep{done: make(chan struct{})}
	p.swept[b] = s
	low := First + p.rec.Range*size + b*block
	if !p.rec.Again && b == p.rec.Block {
		close(s.done)
		return
	}
	go func() {
		s.err = p.sweep(low, low+block)
		close(s.done)
	}()
}

// Take returns a number that no machine has and that owns no files.
func (p *Pool) Take() (int, error) {
	p.mu.Lock()
	for range size {
		if p.next == block {
			delete(p.swept, p.rec.Block)
			if err := p.nextBlock(); err != nil {
				p.mu.Unlock()
				return 0, fault.Wrap(err, fault.Unavailable, codeUsers,
					"the users of machines cannot be saved in %s", p.dir)
			}
		}
		uid := First + p.rec.Range*size + p.rec.Block*block + p.next
		p.next++
		if p.next == block*3/4 && p.rec.Again { // in advance, so that nobody waits for the search later
			p.lookLocked((p.rec.Block + 1) % (size / block))
		}
		if p.used[uid] {
			continue
		}
		p.used[uid] = true
		s := p.swept[p.rec.Block]
		p.mu.Unlock()
		if <-s.done; s.err != nil {
			p.Give(uid)
			return 0, fault.Wrap(s.err, fault.Unavailable, codeUsers,
				"the files that earlier machines left cannot be examined, so no machine gets a user of its own now")
		}
		return uid, nil
	}
	p.mu.Unlock()
	return 0, fault.New(fault.Exhausted, codeUsers, "all %d users of this worker's machines are taken", size)
}

// Give returns the number of a removed machine to the pool.
func (p *Pool) Give(uid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, uid)
}

// Keep records that a machine already has a number, and reports whether it belongs to this worker's range.
func (p *Pool) Keep(uid int) bool {
	low := First + p.rec.Range*size
	if uid < low || uid >= low+size {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[uid] = true
	return true
}

// isMachineUser reports whether a machine has this number.
func (p *Pool) isMachineUser(uid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used[uid]
}
