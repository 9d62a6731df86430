package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/disk/disktest"
)

// TestSoukOnAFullDiskStaysUsable fills the disk of a souk that is at work, while clients launch and destroy, and something else takes
// each byte that is given up. The process lives on. It lists, stops and destroys, and takes nothing new; once there is
// room it takes new things again by itself, and what was acknowledged is there, also after kill -9.
func TestSoukOnAFullDiskStaysUsable(t *testing.T) {
	t.Parallel()
	state := smallDisk(t)
	var log syncBuffer
	own := &live.Souk{Exe: soukExe(t), State: state, Stderr: &log, Args: []string{"--cpus", "1000", "--memory",
		"100000"}}
	if err := own.Start(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	defer own.End()
	defer func() {
		if t.Failed() {
			t.Logf("souk said:\n%s", log.String())
		}
	}()
	if _, err := own.Client.CreateApp(t.Context(), live.App); err != nil {
		t.Fatal(err)
	}
	var kept []*machine.Machine
	for range 8 {
		kept = append(kept, mustLaunch(t, own.Client))
	}
	pid := own.Cmd.Process.Pid
	load := startLoad(t, own.Client)
	emptied := fillUp(t, filepath.Join(state, "ballast"))
	full := until(t, "a job is refused", func() bool { return fault.CodeOf(submit(t, own.Client)) == "disk_full" })
	t.Logf("nothing new is taken %v after the disk was full", full)
	whileFull(t, own.Client, kept)
	kept = kept[4:]
	emptied()
	back := until(t, "a job is taken again", func() bool { return submit(t, own.Client) == nil })
	t.Logf("new things are taken %v after there was room", back)
	acknowledged := append(load.end(), kept...)
	if own.Cmd.Process.Pid != pid || own.Cmd.Process.Signal(syscall.Signal(0)) != nil {
		t.Fatal("the process has ended")
	}
	waittest.Until(t, "a launch is taken again", func() bool { // the worker looks once a second
		m, err := own.Client.Launch(t.Context(), live.App, live.LaunchOf([]string{"/bin/sleep", "1000"}, false),
			client.LaunchOptions{})
		if err == nil {
			acknowledged = append(acknowledged, m)
		}
		return err == nil
	})
	t.Logf("%d launches were acknowledged and not destroyed, %d refused", len(acknowledged), load.refused)
	allThere(t, own.Client, acknowledged)
	own.Kill()
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	settleAll(t.Context(), t, own.Client)
	allThere(t, own.Client, acknowledged)
}

// whileFull stops and destroys the first machines, and is refused what is new.
func whileFull(t *testing.T, cl *client.Client, kept []*machine.Machine) {
	t.Helper()
	if list, err := cl.Machines(t.Context(), live.App, client.ListOptions{}); err != nil || len(list) < len(kept) {
		t.Errorf("%d machines are listed, %v", len(list), err)
	}
	for i, m := range kept[:4] {
		var err error
		if i%2 == 0 {
			_, err = cl.Stop(t.Context(), live.App, m.ID, "", client.StopOptions{})
		}
		if err == nil {
			_, err = cl.Destroy(t.Context(), live.App, m.ID, "", true)
		}
		if err != nil {
			t.Errorf("machine %s cannot be destroyed: %v", m.ID, err)
		}
	}
	_, launched := cl.Launch(t.Context(), live.App, live.LaunchOf([]string{"/bin/sleep", "1000"}, false),
		client.LaunchOptions{})
	_, made := cl.CreateApp(t.Context(), "another")
	_, allotted := cl.CreateVolume(t.Context(), live.App, api.NewVolume{Name: "data", SizeGB: new(1)})
	for what, err := range map[string]error{"a machine": launched, "an app": made, "a volume": allotted} {
		if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "is full: ") {
			t.Errorf("%s while the disk is full: %v", what, err)
		}
	}
}

func submit(t *testing.T, cl *client.Client) error {
	_, err := cl.SubmitJob(t.Context(), "", jobs.Spec{App: live.App, Command: []string{"true"}, First: 1, Last: 2})
	return err
}

func mustLaunch(t *testing.T, cl *client.Client) *machine.Machine {
	t.Helper()
	m, err := cl.Launch(t.Context(), live.App, live.LaunchOf([]string{"/bin/sleep", "1000"}, false),
		client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// allThere looks for machines that were acknowledged.
func allThere(t *testing.T, cl *client.Client, all []*machine.Machine) {
	t.Helper()
	for _, m := range all {
		if got, err := cl.Machine(t.Context(), live.App, m.ID); err != nil || got.State != machine.Started {
			t.Errorf("machine %s was acknowledged; now it is %s, %v", m.ID, brief(got), err)
		}
	}
}

// load is clients that launch machines, and destroy most of them again.
type load struct {
	stop    context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	there   []*machine.Machine
	refused int
}

func startLoad(t *testing.T, cl *client.Client) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	for range 4 {
		l.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.once(t, cl, n)
			}
		})
	}
	return l
}

// once launches one machine, and destroys it again unless it is a twentieth.
func (l *load) once(t *testing.T, cl *client.Client, n int) {
	ctx := t.Context()
	m, err := cl.Launch(ctx, live.App, live.LaunchOf([]string{"/bin/sleep", "1000"}, false), client.LaunchOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.refused++
	case n%20 == 0 && m.State == machine.Started: // and not only begun, where the host is slow
		l.there = append(l.there, m)
	default:
		l.mu.Unlock()
		_, err = cl.Destroy(ctx, live.App, m.ID, "", true)
		l.mu.Lock()
		if err != nil {
			t.Errorf("machine %s cannot be destroyed: %v", m.ID, err)
		}
	}
}

// end returns the machines that were acknowledged and are to be there.
func (l *load) end() []*machine.Machine {
	l.stop()
	l.wg.Wait()
	return l.there
}

// smallDisk returns a directory with a disk of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	disktest.Mount(t, dir, "256m")
	return dir
}

// fillUp writes a file until nothing more goes, and again whenever there is room, until what it returns is called: that
// removes the file.
func fillUp(t *testing.T, path string) (empty func()) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	fill := func() {
		for size := 1 << 20; size > 0; {
			if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				size /= 2
			} else if err != nil {
				t.Error(err)
				return
			}
		}
	}
	fill()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(10 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-ended:
				return
			case <-again.C:
				fill()
			}
		}
	}()
	return func() {
		close(ended)
		<-done
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			t.Error(err)
		}
	}
}

// until waits, and returns how long.
func until(t *testing.T, what string, so func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	waittest.Until(t, what, so)
	return time.Since(began)
}
