package server

import (
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/runtime/loopfs"
)

// volumeFlags say how volumes are stored.
type volumeFlags struct {
	Volumes string
}

// Values of --volumes.
const (
	volumesAuto      = "auto"
	volumesSized     = "sized"
	volumesDirectory = "directory"
)

func (o *volumeFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.Volumes, "volumes", volumesAuto,
		"how new volumes are kept; sized: each is a file system that holds its size; directory: sizes are not held; "+
			"auto: sized where souk is root and can")
}

// sized reports whether new volumes have an enforced size. It is an error that they cannot only if it was asked for.
func (o *volumeFlags) sized() (bool, error) {
	switch o.Volumes {
	case volumesDirectory:
		return false, nil
	case volumesSized:
		err := loopfs.Able()
		return err == nil, err
	case volumesAuto, "":
		return loopfs.Able() == nil, nil
	}
	return false, cli.Usagef("--volumes is %s, %s or %s, not %q", volumesAuto, volumesSized, volumesDirectory,
		o.Volumes)
}
