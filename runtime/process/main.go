package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/soukhq/souk/internal/heap"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/keeper"
)

// Environment variables for the reaper, besides its directory.
const (
	envReady   = "SOUK_REAPER_READY"   // descriptor to which the reaper writes one line: "ok", or the error
	envCgroups = "SOUK_REAPER_CGROUPS" // "off"
	envIdle    = "SOUK_REAPER_IDLE"    // reaper.Options.Idle
)

// ReaperMain runs the reaper of dir: it is the hidden command `souk reaper DIR`. It returns when ctx ends.
func ReaperMain(ctx context.Context, dir string) error { return reaperMain(ctx, dir, nil) }

func reaperMain(ctx context.Context, dir string, at func(reaper.Point)) error {
	if of := os.Getenv(keeper.EnvKeep); of != "" {
		return keeper.Run(ctx, of)
	}
	// the heap is small: collecting at every doubling would cost a twentieth of the time of a burst of starts
	go heap.Keep(ctx)
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ready := func(string) {}
	if fd, err := strconv.Atoi(os.Getenv(envReady)); err == nil && fd > 2 {
		f := os.NewFile(uintptr(fd), "ready")
		syscall.CloseOnExec(fd)
		_ = os.Unsetenv(envReady) // after an upgrade the number may belong to another descriptor
		ready = func(s string) {
			_, _ = fmt.Fprintln(f, s) // souk may be gone already
			_ = f.Close()
		}
	}
	idle, _ := time.ParseDuration(os.Getenv(envIdle)) // set by souk, or empty
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = reaper.Run(ctx, reaper.Options{
			Dir: dir, NoCgroups: os.Getenv(envCgroups) == "off", Build: Build(), Log: log,
			Ready: func() { ready("ok") }, At: at, Idle: idle,
		})
	}
	if err != nil {
		ready(err.Error())
		return fmt.Errorf("reaper: %w", err)
	}
	return nil
}

// ReaperHook becomes the reaper, and does not return, if this process was started as one. A program that sets
// Options.ReaperCommand to itself, usually a test, calls it first in main or TestMain.
func ReaperHook() { ReaperHookAt(nil) }

// ReaperHookAt is ReaperHook for tests that kill the reaper during a start: at is called at each point.
func ReaperHookAt(at func(dir string, p reaper.Point)) {
	dir := os.Getenv(reaper.EnvDir)
	if dir == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var here func(reaper.Point)
	if at != nil {
		here = func(p reaper.Point) { at(dir, p) }
	}
	if err := reaperMain(ctx, dir, here); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Build identifies this program: by its module version and revision, if they were stamped, and its file's size and
// time.
func Build() string {
	name := ""
	if b, ok := debug.ReadBuildInfo(); ok {
		name = b.Main.Version
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				name += " " + s.Value
			}
		}
	}
	if st, err := os.Stat("/proc/self/exe"); err == nil {
		name += fmt.Sprintf(" %d %d", st.Size(), st.ModTime().UnixNano())
	}
	return name
}
