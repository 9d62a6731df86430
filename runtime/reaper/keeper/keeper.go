// Package keeper keeps the near ends of machines' terminals open in a process beside the reaper.
//
// If a reaper is killed, its successor can reopen a pipe through /proc, but not a terminal; and when the last copy of
// its near end is closed, the machine gets SIGHUP. So the reaper gives a copy to a small process, which only holds it,
// and the next reaper gets it back from there. A terminal is lost only if both are killed.
//
// One process keeps the terminals of all machines of a reaper. It runs only while there are any.
package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

// The operations of a keeper.
const (
	opKeep  = "keep" // the request carries a descriptor
	opDrop  = "drop"
	opNames = "names"
	opGive  = "give" // the answer carries a descriptor
	opEnd   = "end"  // sent by a keeper that replaces this one
)

// request is a request to a keeper, and also its answer: the request with the result filled in.
type request struct {
	Op    string   `json:"op"`
	Name  string   `json:"name,omitempty"`
	Names []string `json:"names,omitempty"`
}

const (
	socketFile = "sock"
	firstConn  = 3 // descriptor of a new keeper's first connection
	patience   = 10 * time.Second
)

// EnvKeep is set for a process that is to be a keeper, to the keeper's directory.
const EnvKeep = "SOUK_REAPER_TERMINALS"

// store is the running state of a keeper.
type store struct {
	mu    sync.Mutex
	files map[string]*os.File
	conns int
	over  bool          // idle has been closed
	idle  chan struct{} // closed when nothing is kept and no reaper is connected, or another keeper takes over
}

// Run runs the keeper. It returns when it has nothing to keep, or ctx ends.
func Run(ctx context.Context, dir string) error {
	socket := filepath.Join(dir, socketFile)
	if c, err := unixsock.Dial(ctx, socket); err == nil { // an earlier keeper that did not answer its reaper
		_ = frame.Write(c, 1, frame.KindRequest, request{Op: opEnd}) // it may be ending already
		_ = c.Close()
	}
	ln, err := unixsock.Listen(socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	k := &store{files: make(map[string]*os.File), idle: make(chan struct{})}
	f := os.NewFile(firstConn, "reaper")
	c, err := net.FileConn(f)
	_ = f.Close() // c has its own copy
	if err != nil {
		return fmt.Errorf("take the first connection: %w", err)
	}
	k.addConn()
	go k.serveReaper(c.(*net.UnixConn)) // FileConn of a socket pair
	go k.acceptReapers(ln)
	select {
	case <-k.idle:
	case <-ctx.Done():
	}
	return nil
}

// acceptPause is the pause after a failed accept.
const acceptPause = 100 * time.Millisecond

// acceptReapers accepts later reapers, until the listener is closed.
func (k *store) acceptReapers(ln *net.UnixListener) {
	for {
		c, err := ln.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files
			<-time.After(acceptPause)
		case unixsock.CheckPeer(c) != nil:
			_ = c.Close()
		default:
			k.addConn()
			go k.serveReaper(c)
		}
	}
}

func (k *store) addConn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns++
}

func (k *store) removeConn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns--; k.conns == 0 && len(k.files) == 0 {
		k.signalIdle()
	}
}

// signalIdle closes idle once. The caller holds k.mu.
func (k *store) signalIdle() {
	if !k.over {
		k.over = true
		close(k.idle)
	}
}

// serveReaper answers one reaper until it disconnects.
func (k *store) serveReaper(c *net.UnixConn) {
	defer k.removeConn()
	defer c.Close()
	from := &frame.Receiver{Conn: c}
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		var q request
		f, err := frame.Read(in)
		if err == nil {
			err = json.Unmarshal(f.Head, &q)
		}
		if err != nil {
			return
		}
		to := &frame.Sender{Conn: c}
		k.mu.Lock()
		switch q.Op {
		case opKeep:
			if len(from.FDs) != 1 { // the descriptor did not arrive: too many open files
				k.mu.Unlock()
				return
			}
			k.dropFile(q.Name)
			k.files[q.Name], from.FDs = pty.Near(from.FDs[0]), nil
		case opDrop:
			k.dropFile(q.Name)
		case opEnd:
			k.signalIdle()
		case opNames:
			for name := range k.files {
				q.Names = append(q.Names, name)
			}
		case opGive:
			if f := k.files[q.Name]; f != nil {
				to.Files = []*os.File{f}
			}
		}
		err = frame.Write(to, f.ID, frame.KindReply, q)
		k.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// dropFile closes a kept file. The caller holds k.mu.
func (k *store) dropFile(name string) {
	if f := k.files[name]; f != nil {
		_ = f.Close()
		delete(k.files, name)
	}
}

// Keeper is the reaper's client of a keeper. Its methods may be called from many goroutines.
type Keeper struct {
	dir     string
	command []string // becomes a keeper if EnvKeep is set
	env     []string
	fork    func(*exec.Cmd) (pid int, err error)

	mu    sync.Mutex
	pid   int           // pid of the last known keeper; 0: none
	conn  *net.UnixConn // nil: there is no keeper
	in    *bufio.Reader
	from  *frame.Receiver
	files map[string]*os.File // the files that are kept
}

// Open connects to the keeper of a directory, and returns what it keeps. When there is something to keep and no keeper,
// fork executes command as one, with the environment env. On an error the keeper may keep more than is returned.
func Open(dir string, command, env []string, fork func(*exec.Cmd) (pid int, err error)) (*Keeper,
	map[string]*os.File, error) {
	k := &Keeper{dir: dir, command: command, env: env, fork: fork, files: make(map[string]*os.File)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := unixsock.Dial(ctx, filepath.Join(dir, socketFile))
	if err != nil {
		return k, nil, nil //nolint:nilerr // there is no keeper
	}
	k.useConn(c)
	if k.pid, err = unixsock.PeerPID(c); err != nil {
		return k, nil, err
	}
	a, _, err := k.askKeeper(request{Op: opNames}, nil)
	for _, name := range a.Names {
		var near *os.File
		if _, near, err = k.askKeeper(request{Op: opGive, Name: name}, nil); err != nil {
			break
		}
		if near != nil {
			k.files[name] = near
		}
	}
	return k, maps.Clone(k.files), err
}

func (k *Keeper) useConn(c *net.UnixConn) {
	k.conn, k.from = c, &frame.Receiver{Conn: c}
	k.in = bufio.NewReader(k.from)
}

// Keep gives the keeper a copy of a near end. A keeper that was killed is replaced, and the new one gets everything
// that the previous one had.
func (k *Keeper) Keep(name string, near *os.File) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files[name] = near
	if k.conn != nil {
		if _, _, err := k.askKeeper(request{Op: opKeep, Name: name}, near); err == nil {
			return nil
		}
		k.close()
	}
	err := k.spawnKeeper()
	for name, f := range k.files {
		if err != nil {
			break
		}
		if f != near && isClosed(f) {
			delete(k.files, name) // no program of its machine uses it any more
			continue
		}
		_, _, err = k.askKeeper(request{Op: opKeep, Name: name}, f)
	}
	if err != nil {
		delete(k.files, name)
		k.close()
		return fmt.Errorf("have a terminal kept: %w", err)
	}
	return nil
}

// isClosed reports whether this process has closed a file. (Seeking in a terminal fails otherwise, with another error.)
func isClosed(f *os.File) bool {
	_, err := f.Seek(0, io.SeekCurrent)
	return errors.Is(err, os.ErrClosed)
}

// Drop forgets a near end. The keeper ends after the last one.
func (k *Keeper) Drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, has := k.files[name]; !has {
		return
	}
	delete(k.files, name)
	if k.conn == nil {
		return
	}
	_, _, err := k.askKeeper(request{Op: opDrop, Name: name}, nil)
	if err != nil || len(k.files) == 0 {
		k.close()
	}
}

// Names lists the kept terminals.
func (k *Keeper) Names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]string, 0, len(k.files))
	for name := range k.files {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Gone waits until a keeper with nothing to keep has ended, or ctx ends. A keeper that keeps something stays, and Gone
// returns at once.
func (k *Keeper) Gone(ctx context.Context) error {
	k.mu.Lock()
	pid, keeps := k.pid, len(k.files) > 0
	k.mu.Unlock()
	if pid == 0 || keeps {
		return nil
	}
	err := wait.Until(ctx, 2*time.Millisecond, func() bool {
		st, err := proc.Read(pid)
		return err != nil || st.State == 'Z'
	})
	if err != nil {
		return fmt.Errorf("wait for the end of the keeper of terminals, process %d: %w", pid, err)
	}
	return nil
}

func (k *Keeper) close() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

// askKeeper makes one round trip. A received near end belongs to the caller.
func (k *Keeper) askKeeper(q request, along *os.File) (a request, back *os.File, err error) {
	if err := k.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return a, nil, err
	}
	to := &frame.Sender{Conn: k.conn}
	if along != nil {
		to.Files = []*os.File{along}
	}
	if err := frame.Write(to, 1, frame.KindRequest, q); err != nil {
		return a, nil, err
	}
	f, err := frame.Read(k.in)
	if err == nil {
		err = json.Unmarshal(f.Head, &a)
	}
	if len(k.from.FDs) == 1 {
		back, k.from.FDs = pty.Near(k.from.FDs[0]), nil
	}
	return a, back, err
}

// spawnKeeper starts a keeper in a new session.
func (k *Keeper) spawnKeeper() error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	mine, theirs := os.NewFile(uintptr(pair[0]), "keeper"), os.NewFile(uintptr(pair[1]), "reaper")
	defer mine.Close()
	defer theirs.Close()
	cmd := exec.Command(k.command[0], append(slices.Clone(k.command[1:]), k.dir)...)
	cmd.Env = append(slices.Clone(k.env), EnvKeep+"="+k.dir, "GOMAXPROCS=1")
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if k.pid, err = k.fork(cmd); err != nil {
		return err
	}
	c, err := net.FileConn(mine)
	if err == nil {
		k.useConn(c.(*net.UnixConn)) // FileConn of a socket pair
	}
	return err
}
