package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/soukhq/souk/bench/live"
)

// rig is a measured souk, and what it is compared with.
type rig struct {
	*live.Souk
	o     *LaunchOptions
	dir   string
	floor *floor
}

func newRig(ctx context.Context, o *LaunchOptions, stderr io.Writer) (*rig, error) {
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return nil, wrapFailure(err, "no temporary directory can be made")
	}
	b := &rig{o: o, dir: dir}
	// With ample capacity: souk is measured, not a full host.
	b.Souk, err = live.Start(filepath.Join(dir, "state"), stderr, "--cpus", "100000", "--memory", "100000000")
	if err == nil {
		_, err = b.Client.CreateApp(ctx, live.App)
	}
	if err == nil {
		b.floor, err = newFloor(filepath.Join(dir, "floor"))
	}
	if err != nil {
		b.close()
		return nil, wrapFailure(err, "it could not begin")
	}
	return b, nil
}

// close ends the souk with its machines and removes the directory.
func (b *rig) close() {
	if b.Souk != nil {
		b.End()
	}
	if b.floor != nil {
		b.floor.close()
	}
	_ = os.RemoveAll(b.dir) // an error leaves only temporary files
}

// sumField adds up a field in kB of a file of each process of souk, in bytes.
func (b *rig) sumField(file, field string) (int64, error) {
	var sum int64
	for _, pid := range b.Processes() {
		one, _, err := live.FieldOf(pid, file, field)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

func (b *rig) proportionalMemory() (int64, error) { return b.sumField("smaps_rollup", "Pss") }

func (b *rig) residentMemory() (int64, error) { return b.sumField("status", "VmRSS") }

// busyShare returns the CPU use of souk's idle processes, in percent of a core.
func (b *rig) busyShare(ctx context.Context) (float64, error) {
	quiet := time.NewTimer(3 * time.Second) // earlier work may still be cleaned up
	defer quiet.Stop()
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-quiet.C:
	}
	before, err := b.processesCPU()
	if err != nil {
		return 0, wrapFailure(err, "the CPU time of souk could not be read")
	}
	begin := time.Now()
	quiet.Reset(b.o.Idle)
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-quiet.C:
	}
	after, err := b.processesCPU()
	if err != nil {
		return 0, wrapFailure(err, "the CPU time of souk could not be read")
	}
	return 100 * (after - before).Seconds() / time.Since(begin).Seconds(), nil
}

// processesCPU returns the CPU time that all processes of souk have taken.
func (b *rig) processesCPU() (time.Duration, error) {
	var sum time.Duration
	for _, pid := range b.Processes() {
		d, err := live.CPU(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

func countLines(b []byte) int { return bytes.Count(b, []byte("\n")) }

// floor does the unavoidable parts of a launch, one after another.
type floor struct {
	file   *os.File
	server *http.Server
	client *http.Client
	url    string
	body   []byte
}

func newFloor(file string) (*floor, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	body, err := json.Marshal(live.LaunchOf(live.Stays(), false))
	if err != nil {
		return nil, errors.Join(err, f.Close(), ln.Close())
	}
	fl := &floor{
		file:   f,
		client: &http.Client{Transport: &http.Transport{}},
		url:    "http://" + ln.Addr().String(),
		body:   body,
	}
	fl.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body) // an answer as large as the request
	})}
	go func() { _ = fl.server.Serve(ln) }() // ends with close
	return fl, nil
}

// measureOnce does one round trip, one fork and exec of argv, and one append with fsync, and gives how long they took.
func (f *floor) measureOnce(argv []string) (time.Duration, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	record := make([]byte, 1024)
	begin := time.Now()
	resp, err := f.client.Post(f.url, "application/json", bytes.NewReader(f.body))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, err
	}
	_, err = f.file.Write(record)
	err = errors.Join(err, f.file.Sync())
	took := time.Since(begin)
	_ = cmd.Process.Kill() // ignore Wait's error: it was killed
	_ = cmd.Wait()
	return took, err
}

func (f *floor) close() {
	_ = f.server.Close()
	_ = f.file.Close()
}
