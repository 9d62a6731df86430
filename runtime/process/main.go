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

// What a reaper is told besides its directory.
const (
	envReady   = "SOUK_REAPER_READY"   // a descriptor that gets one line: "ok", or what went wrong
	envCgroups = "SOUK_REAPER_CGROUPS" // "off"
	envIdle    = "SOUK_REAPER_IDLE"    // reaper.Options.Idle
)

// ReaperMain is the reaper of dir, the whole of the hidden command `souk reaper DIR`. It returns when ctx ends.
func ReaperMain(ctx context.Context, dir string) error { return reaperMain(ctx, dir, nil) }

func reaperMain(ctx context.Context, dir string, at func(reaper.Point)) error {
	if of := os.Getenv(keeper.EnvKeep); of != "" {
		return keeper.Run(ctx, of)
	}
	go heap.Keep(ctx) // it is small: to collect it at every doubling would take a twentieth of a burst of starts
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ready := func(string) {}
	if fd, err := strconv.Atoi(os.Getenv(envReady)); err == nil && fd > 2 {
		f := os.NewFile(uintptr(fd), "ready")
		syscall.CloseOnExec(fd)
		_ = os.Unsetenv(envReady) // an upgrade must not take another descriptor for it
		ready = func(s string) {
			_, _ = fmt.Fprintln(f, s) // souk may be gone already
			_ = f.Close()
		}
	}
	idle, _ := time.ParseDuration(os.Getenv(envIdle)) // set by souk, or not at all
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

// ReaperHook becomes the reaper, and does not return, when this process was started to be one. Programs that set
// Options.ReaperCommand to themselves, tests above all, call it first thing in main or TestMain.
func ReaperHook() { ReaperHookAt(nil) }

// ReaperHookAt is ReaperHook for tests that kill the reaper at a point of a start, where at is called.
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

// Build names this program: its module version and revision when they were stamped, and its file's size and time.
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
