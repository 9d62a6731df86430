package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// fleet is the members of a measured cluster, each a process of this program.
type fleet struct {
	members  []*fleetMember
	heard    chan heard
	joined   time.Duration   // from the first process's start until all had all
	expected map[string]bool // members that we killed
	wrong    int             // members thought dead that were not
	stop     chan struct{}
	readers  sync.WaitGroup
}

type fleetMember struct {
	id  string
	cmd *exec.Cmd
	in  io.WriteCloser
}

type heard struct {
	from int
	line memberLine
}

func (m *fleetMember) order(o memberOrder) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = m.in.Write(append(raw, '\n'))
	return err
}

func (m *fleetMember) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait() // and it ends by that
	_ = m.in.Close()
}

// startFleet starts the members, lets them join one after another, and waits until each knows all.
func startFleet(ctx context.Context, n int, errs io.Writer) (f *fleet, err error) {
	f = &fleet{heard: make(chan heard, 1024), expected: map[string]bool{}, stop: make(chan struct{})}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	exe, err := os.Executable()
	if err != nil {
		return f, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return f, err
	}
	began := time.Now()
	seed := ""
	for i := range n {
		if err := f.spawn(exe, fmt.Sprintf("w%03d", i), base64.RawURLEncoding.EncodeToString(secret), errs); err != nil {
			return f, err
		}
		addr := ""
		if err := f.until(ctx, 30*time.Second, func(from int, x memberLine) bool {
			addr = x.Addr
			return from == i && x.What == "up"
		}); err != nil {
			return f, err
		}
		if seed == "" {
			seed = addr
			continue
		}
		if err := f.members[i].order(memberOrder{Do: "join", Addr: seed}); err != nil {
			return f, err
		}
		if err := f.until(ctx, 30*time.Second, func(from int, x memberLine) bool { return from == i && x.What == "joined" }); err != nil {
			return f, err
		}
	}
	for {
		xs, err := f.stats(ctx)
		if err != nil {
			return f, err
		}
		all := true
		for _, x := range xs {
			all = all && x.Alive == n && x.Known == n
		}
		if all {
			f.joined = time.Since(began)
			return f, nil
		}
		if err := rest(ctx, 50*time.Millisecond); err != nil {
			return f, err
		}
	}
}

func (f *fleet) spawn(exe, id, key string, errs io.Writer) error {
	cmd := exec.Command(exe, "bench-member", id, key)
	cmd.Stderr = errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	from := len(f.members)
	f.members = append(f.members, &fleetMember{id: id, cmd: cmd, in: in})
	f.readers.Go(func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			var x memberLine
			if json.Unmarshal(sc.Bytes(), &x) != nil {
				return
			}
			select {
			case f.heard <- heard{from, x}:
			case <-f.stop:
				return
			}
		}
	})
	return nil
}

// until reads what the members say until enough says that it is.
func (f *fleet) until(ctx context.Context, patience time.Duration, enough func(from int, x memberLine) bool) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			return errSilent
		case h := <-f.heard:
			if h.line.What == "failed" {
				return fmt.Errorf("member %d: %s", h.from, h.line.Error)
			}
			if h.line.What == "member" && h.line.State == "dead" && !f.expected[h.line.Key] {
				f.wrong++
			}
			if enough(h.from, h.line) {
				return nil
			}
		}
	}
}

// stats asks every member for its counts.
func (f *fleet) stats(ctx context.Context) ([]memberLine, error) {
	out, got := make([]memberLine, len(f.members)), 0
	for _, m := range f.members {
		if err := m.order(memberOrder{Do: "stats"}); err != nil {
			return nil, err
		}
	}
	err := f.until(ctx, 30*time.Second, func(from int, x memberLine) bool {
		if x.What == "stats" {
			out[from] = x
			got++
		}
		return got == len(f.members)
	})
	return out, err
}

// close ends all members.
func (f *fleet) close() {
	close(f.stop)
	for _, m := range f.members {
		m.kill()
	}
	f.readers.Wait()
}
