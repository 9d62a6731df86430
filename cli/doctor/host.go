package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime/process"
)

// examineHost makes the checks that need no server.
func examineHost(ctx context.Context, c *cli.Env, dir string) []cluster.Finding {
	found := []cluster.Finding{
		{
			Name:   "system",
			OK:     goruntime.GOOS == "linux",
			Have:   kernelText() + ", " + goruntime.GOARCH,
			Advice: unless(goruntime.GOOS == "linux", "souk runs machines on Linux only"),
		},
		{Name: "cpus", OK: true, Have: fmt.Sprintf("%d", goruntime.NumCPU())},
		memoryFinding(), openFilesFinding(), diskFinding(dir), fsyncFinding(dir),
	}
	found = append(found, examineRuntime(ctx, dir)...)
	return found
}

// unless returns the advice when ok is not.
func unless(ok bool, advice string) string {
	if ok {
		return ""
	}
	return advice
}

func kernelText() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return goruntime.GOOS
	}
	var b strings.Builder
	for _, ch := range u.Release {
		if ch == 0 {
			break
		}
		b.WriteByte(byte(ch))
	}
	return "Linux " + b.String()
}

func memoryFinding() cluster.Finding {
	f := cluster.Finding{Name: "memory"}
	total, err := cli.MemInfo("MemTotal")
	free, err2 := cli.MemInfo("MemAvailable")
	if err != nil || err2 != nil {
		f.Have, f.Advice = "unknown", "/proc/meminfo cannot be read; give souk dev --memory"
		return f
	}
	f.OK = free >= 256
	f.Have = fmt.Sprintf("%d MiB, %d MiB available", total, free)
	f.Advice = unless(f.OK, "the smallest machine is 256 MB")
	return f
}

func openFilesFinding() cluster.Finding {
	const enough = 4096
	f := cluster.Finding{Name: "open files"}
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		f.Have = err.Error()
		return f
	}
	f.OK, f.Have = l.Max >= enough, fmt.Sprintf("at most %d", l.Max)
	f.Advice = unless(f.OK,
		fmt.Sprintf("some machines use several; for a thousand machines let it be %d or more (ulimit -Hn)", enough))
	return f
}

func diskFinding(dir string) cluster.Finding {
	f := cluster.Finding{Name: "disk"}
	mib, err := cli.FreeDisk(dir)
	if err != nil {
		f.Have = err.Error()
		return f
	}
	f.OK, f.Have = mib >= 1024, fmt.Sprintf("%d MiB free at %s", mib, cli.Above(dir))
	f.Advice = unless(f.OK, "machines and their output need room; free some, or give souk dev another --dir")
	return f
}

// fsyncFinding measures what every durable answer costs here.
func fsyncFinding(dir string) cluster.Finding {
	f := cluster.Finding{Name: "fsync"}
	file, err := os.CreateTemp(cli.Above(dir), ".souk-doctor-*")
	if err != nil {
		f.Have, f.Advice = err.Error(), "souk must be able to write there"
		return f
	}
	defer os.Remove(file.Name())
	defer file.Close()
	took := make([]time.Duration, 0, 32)
	for range cap(took) {
		begin := time.Now()
		_, err := file.Write(make([]byte, 512))
		if err == nil {
			err = file.Sync()
		}
		if err != nil {
			f.Have = err.Error()
			return f
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	p50 := took[len(took)/2]
	f.OK, f.Have = p50 < 20*time.Millisecond, fmt.Sprintf("%s, median of %d", cli.Millis(p50), len(took))
	f.Advice = unless(f.OK, "each answer waits for the disk once; an SSD makes launches much faster")
	return f
}

// examineRuntime opens a runtime in a temporary directory, and asks what it has and lacks here.
func examineRuntime(ctx context.Context, dir string) []cluster.Finding {
	lacks := func(err error) []cluster.Finding {
		return []cluster.Finding{{Name: "runtime", Have: "does not start", Advice: err.Error()}}
	}
	tmp, err := os.MkdirTemp(cli.Above(dir), ".souk-doctor-*")
	if err != nil {
		return lacks(err)
	}
	defer os.RemoveAll(tmp)
	r, err := process.Open(process.Options{Dir: filepath.Join(tmp, "run"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return lacks(err)
	}
	defer r.Close()
	found := r.Examine(ctx)
	if err := r.StopReaper(ctx); err != nil {
		return append(found, lacks(err)...)
	}
	return found
}
