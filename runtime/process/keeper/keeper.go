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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/runtime/process/frame"
	"github.com/soukhq/souk/runtime/process/pty"
	"github.com/soukhq/souk/unixsock"
)

// What a keeper is asked for.
const (
	opKeep  = "keep" // a descriptor comes along
	opDrop  = "drop"
	opNames = "names"
	opGive  = "give" // a descriptor goes back
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
	idle  chan struct{} // closed when there is nothing to keep, and nobody who may bring something
}

// Run is the keeper. It returns when there is nothing to keep any more, or ctx ends.
func Run(ctx context.Context, dir string) error {
	ln, err := unixsock.Listen(filepath.Join(dir, socketFile))
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
	k.enter()
	go k.serve(c.(*net.UnixConn)) // it is one of a pair of them
	go func() {
		for {
			c, err := ln.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && unixsock.CheckPeer(c) == nil {
				k.enter()
				go k.serve(c)
			}
		}
	}()
	select {
	case <-k.idle:
	case <-ctx.Done():
	}
	return nil
}

func (k *store) enter() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns++
}

func (k *store) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns--; k.conns == 0 && len(k.files) == 0 {
		close(k.idle)
	}
}

// serve answers one reaper until it goes.
func (k *store) serve(c *net.UnixConn) {
	defer k.leave()
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
			if len(from.FDs) == 1 {
				k.drop(q.Name)
				k.files[q.Name], from.FDs = pty.Near(from.FDs[0]), nil
			}
		case opDrop:
			k.drop(q.Name)
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

// drop is called with k.mu held.
func (k *store) drop(name string) {
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
	fork    func(*exec.Cmd) error

	mu    sync.Mutex
	conn  *net.UnixConn // nil: there is no keeper
	in    *bufio.Reader
	from  *frame.Receiver
	files map[string]*os.File // what is kept
}

// Open finds the keeper of a directory, and what it keeps. command is executed, by fork, to become one when there is
// something to keep, in the environment env.
func Open(dir string, command, env []string, fork func(*exec.Cmd) error) (*Keeper, map[string]*os.File, error) {
	k := &Keeper{dir: dir, command: command, env: env, fork: fork, files: make(map[string]*os.File)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := unixsock.Dial(ctx, filepath.Join(dir, socketFile))
	if err != nil {
		return k, nil, nil //nolint:nilerr // there is none
	}
	k.use(c)
	a, _, err := k.ask(request{Op: opNames}, nil)
	if err != nil {
		return k, nil, err
	}
	for _, name := range a.Names {
		_, near, err := k.ask(request{Op: opGive, Name: name}, nil)
		if err != nil {
			return k, nil, err
		}
		if near != nil {
			k.files[name] = near
		}
	}
	out := make(map[string]*os.File, len(k.files))
	for name, f := range k.files {
		out[name] = f
	}
	return k, out, nil
}

func (k *Keeper) use(c *net.UnixConn) {
	k.conn, k.from = c, &frame.Receiver{Conn: c}
	k.in = bufio.NewReader(k.from)
}

// Keep has a copy of a near end kept. A keeper that was killed is replaced, and gets all that the one before had.
func (k *Keeper) Keep(name string, near *os.File) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files[name] = near
	if k.conn != nil {
		if _, _, err := k.ask(request{Op: opKeep, Name: name}, near); err == nil {
			return nil
		}
		k.close()
	}
	err := k.spawn()
	for name, f := range k.files {
		if err == nil {
			_, _, err = k.ask(request{Op: opKeep, Name: name}, f)
		}
	}
	if err != nil {
		delete(k.files, name)
		k.close()
		return fmt.Errorf("have a terminal kept: %w", err)
	}
	return nil
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
	_, _, err := k.ask(request{Op: opDrop, Name: name}, nil)
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

func (k *Keeper) close() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

// ask makes one round trip. A near end that comes back is the caller's.
func (k *Keeper) ask(q request, along *os.File) (a request, back *os.File, err error) {
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

// spawn starts a keeper, in a session of its own.
func (k *Keeper) spawn() error {
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
	if err := k.fork(cmd); err != nil {
		return err
	}
	c, err := net.FileConn(mine)
	if err == nil {
		k.use(c.(*net.UnixConn)) // it is one of a pair of them
	}
	return err
}
