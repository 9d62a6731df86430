package live

import (
	"github.com/soukhq/souk/machine"
)

// The programs that are launched: one that stays and one that ends at once.
func Stays() []string { return []string{"/bin/sleep", "100000"} }

func Ends() []string { return []string{"/bin/true"} }

const App = "bench"

func LaunchOf(argv []string, skip bool) *machine.Launch {
	return &machine.Launch{SkipLaunch: skip, Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: argv},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Restart: &machine.Restart{Policy: "no"}}}
}
