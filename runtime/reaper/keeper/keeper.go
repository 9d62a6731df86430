// Package keeper keeps the near ends of machines' terminals beside the reaper that uses them.
//
// A pipe can be opened again through /proc by a reaper whose forerunner was killed; a terminal cannot, and when nobody
// has its near end any more, the machine is sent SIGHUP. So the reaper gives a copy to a small process, which does
// nothing but hold it, and the next reaper gets it back from there. Only when both are killed is a terminal lost.
//
// One process keeps the terminals of all machines of a reaper. It is there only while there are any.
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

// What a keeper is asked for.
const (
	opKeep  = "keep" // a descriptor comes along
	opDrop  = "drop"
	opNames = "names"
	opGive  = "give" // a descriptor goes back
	opEnd   = "end"  // by the one that takes its place
)

// request is what a keeper is asked, and what it answers: the same with what was asked for.
type request struct {
	Op    string   `json:"op"`
	Name  string   `json:"name,omitempty"`
	Names []string `json:"names,omitempty"`
}

const (
	socketFile = "sock"
	firstConn  = 3 // the descriptor of the connection that a keeper begins with
	patience   = 10 * time.Second
)

// EnvKeep is set for a program that is to be a keeper, to the directory that the keeper has for itself.
const EnvKeep = "SOUK_REAPER_TERMINALS"

// store is the running state of a keeper.
type store struct {
	mu    sync.Mutex
	files map[string]*os.File
	conns int
	over  bool          // idle is closed
	idle  chan struct{} // closed when there is nothing to keep and nobody who may bring something, or another one
}

// Run is the keeper. It returns when there is nothing to keep any more, or ctx ends.
func Run(ctx context.Context, dir string) error {
	socket := filepath.Join(dir, socketFile)
	if c, err := unixsock.Dial(ctx, socket); err == nil { // of one that its reaper had no answer from
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
	_ = f.Close() // c has its own
	if err != nil {
		return fmt.Errorf("take the first connection: %w", err)
	}
	k.addConn()
	go k.serveReaper(c.(*net.UnixConn)) // it is one of a pair of them
	go k.acceptReapers(ln)
	select {
	case <-k.idle:
	case <-ctx.Done():
	}
	return nil
}

// acceptPause is how long a keeper that cannot take a connection waits before it tries again.
const acceptPause = 100 * time.Millisecond

// acceptReapers takes the reapers that come after the first, until the listener is closed.
func (k *store) acceptReapers(ln *net.UnixListener) {
	for {
		c, err := ln.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // it has too many open files
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

// signalIdle is called with k.mu held.
func (k *store) signalIdle() {
	if !k.over {
		k.over = true
		close(k.idle)
	}
}

// serveReaper answers one reaper until it goes.
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
			if len(from.FDs) != 1 { // there was no room for it
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

// dropFile is called with k.mu held.
func (k *store) dropFile(name string) {
	if f := k.files[name]; f != nil {
		_ = f.Close()
		delete(k.files, name)
	}
}

// Keeper is the reaper's side. Its methods may be called from many goroutines.
type Keeper struct {
	dir     string
	command []string // becomes a keeper where EnvKeep is set
	env     []string
	fork    func(*exec.Cmd) (pid int, err error)

	mu    sync.Mutex
	pid   int           // of the last one that there was; 0: none was known
	conn  *net.UnixConn // nil: there is no keeper
	in    *bufio.Reader
	from  *frame.Receiver
	files map[string]*os.File // what is kept
}

// Open finds the keeper of a directory, and what it keeps. command is executed, by fork, to become one when there is
// something to keep, in the environment env. With an error there may be more that is kept than what is returned.
func Open(dir string, command, env []string, fork func(*exec.Cmd) (pid int, err error)) (*Keeper,
	map[string]*os.File, error) {
	k := &Keeper{dir: dir, command: command, env: env, fork: fork, files: make(map[string]*os.File)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := unixsock.Dial(ctx, filepath.Join(dir, socketFile))
	if err != nil {
		return k, nil, nil //nolint:nilerr // there is none
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

// Keep has a copy of a near end kept. A keeper that was killed is replaced, and gets all that the one before had.
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
			delete(k.files, name) // its machine has no program any more that has it
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

// isClosed says whether a file has been closed by this process. No terminal has a place to seek.
func isClosed(f *os.File) bool {
	_, err := f.Seek(0, io.SeekCurrent)
	return errors.Is(err, os.ErrClosed)
}

// Drop forgets a near end. The keeper ends with the last one.
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

// Names lists what is kept.
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

// Gone waits until a keeper that has nothing to keep any more has ended, or ctx has. One that keeps something stays.
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

// askKeeper makes one round trip. A near end that comes back is the caller's.
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

// spawnKeeper starts a keeper, in a session of its own.
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
		k.useConn(c.(*net.UnixConn)) // it is one of a pair of them
	}
	return err
}
