package live

import (
	"github.com/soukhq/souk/machine"
)

// Stays returns the command of a program that does not end.
func Stays() []string { return []string{"/bin/sleep", "100000"} }

// Ends returns the command of a program that ends at once.
func Ends() []string { return []string{"/bin/true"} }

// App is the app of all measured machines.
const App = "bench"

// LaunchOf returns the launch of a small machine that runs argv; with skip it is made and not started.
func LaunchOf(argv []string, skip bool) *machine.Launch {
	return &machine.Launch{SkipLaunch: skip, Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: argv},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Restart: &machine.Restart{Policy: "no"}}}
}
