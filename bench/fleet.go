package bench

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

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/internal/wait"
)

// fleet is the members of a measured cluster, each a process of this program.
type fleet struct {
	members  []*fleetMember
	pace     string
	heard    chan heard
	joined   time.Duration   // from the first process's start until all knew all
	expected map[string]bool // members that we killed
	wrong    int             // live members declared dead
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

func (m *fleetMember) sendOrder(o memberOrder) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = m.in.Write(append(raw, '\n'))
	return err
}

func (m *fleetMember) killMember() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait() // it was killed
	_ = m.in.Close()
}

// startFleet starts the members, lets them join one after another, and waits until each knows all.
func startFleet(ctx context.Context, n int, pace string, errs io.Writer) (f *fleet, err error) {
	f = &fleet{pace: pace, heard: make(chan heard, 1024), expected: map[string]bool{}, stop: make(chan struct{})}
	defer func() {
		if err != nil {
			f.closeMembers()
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
	var addrs []string
	for i := range n {
		if err := f.spawnMember(exe, fmt.Sprintf("w%03d", i), base64.RawURLEncoding.EncodeToString(secret),
			errs); err != nil {
			return f, err
		}
		addr := ""
		if err := f.readUntil(ctx, startTime, func(from int, x memberLine) bool {
			addr = x.Addr
			return from == i && x.What == "up"
		}); err != nil {
			return f, fmt.Errorf("member %d did not start: %w", i, err)
		}
		if err := f.joinMember(ctx, i, addrs); err != nil {
			return f, err
		}
		addrs = append(addrs, addr)
		if i%wave == wave-1 { // let the cost of joining settle before the next wave
			if err := f.awaitMeeting(ctx); err != nil {
				return f, err
			}
		}
	}
	if err := f.awaitMeeting(ctx); err != nil {
		return f, err
	}
	f.joined = time.Since(began)
	return f, nil
}

// awaitMeeting waits until each member knows all, and considers them alive.
func (f *fleet) awaitMeeting(ctx context.Context) error {
	n, late := len(f.members), time.Now().Add(meetTime)
	for {
		began := time.Now()
		xs, err := f.readStats(ctx)
		if err != nil {
			return err
		}
		whole := 0
		for _, x := range xs {
			if x.Alive == n && x.Known == n {
				whole++
			}
		}
		if whole == n {
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("after %v only %d of %d members know all the others, and hold them for alive", meetTime,
				whole, n)
		}
		// pause, so that asking does not keep them busy
		if err := wait.For(ctx, 50*time.Millisecond+10*time.Since(began)); err != nil {
			return err
		}
	}
}

// How long things may take while a fleet starts. They are generous: a host with more members than it has cores for is
// slow.
const (
	startTime = time.Minute // of one member
	meetTime  = 3 * time.Minute
	joinTries = 20
	wave      = 20 // members that join before waiting for all
)

// joinMember lets a member join through an earlier member, another one at each try: like agents, it retries if that one
// is too busy to answer in time.
func (f *fleet) joinMember(ctx context.Context, i int, addrs []string) error {
	var last string
	for try := range joinTries {
		if len(addrs) == 0 {
			return nil
		}
		if err := f.members[i].sendOrder(memberOrder{Do: "join", Addr: addrs[(i*7+try)%len(addrs)]}); err != nil {
			return err
		}
		last = ""
		if err := f.readUntil(ctx, startTime, func(from int, x memberLine) bool {
			last = x.Error
			return from == i && (x.What == "joined" || x.What == "unjoined")
		}); err != nil {
			return fmt.Errorf("member %d did not join: %w", i, err)
		}
		if last == "" {
			return nil
		}
	}
	return fmt.Errorf("member %d could not join in %d tries: %s", i, joinTries, last)
}

func (f *fleet) spawnMember(exe, id, key string, errs io.Writer) error {
	cmd := exec.Command(exe, "bench-member", id, key, f.pace)
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

// readUntil reads the members' lines until enough returns true.
func (f *fleet) readUntil(ctx context.Context, patience time.Duration, enough func(from int, x memberLine) bool) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			return live.ErrSilent
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

// readStats asks every member for its counts.
func (f *fleet) readStats(ctx context.Context) ([]memberLine, error) {
	return f.askMembers(ctx, memberOrder{Do: "stats"})
}

func (f *fleet) askMembers(ctx context.Context, o memberOrder) ([]memberLine, error) {
	out, got := make([]memberLine, len(f.members)), 0
	for _, m := range f.members {
		if err := m.sendOrder(o); err != nil {
			return nil, err
		}
	}
	err := f.readUntil(ctx, startTime, func(from int, x memberLine) bool {
		if x.What == "stats" {
			out[from] = x
			got++
		}
		return got == len(f.members)
	})
	return out, err
}

// closeMembers ends all members.
func (f *fleet) closeMembers() {
	close(f.stop)
	for _, m := range f.members {
		m.killMember()
	}
	f.readers.Wait()
}
