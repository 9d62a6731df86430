package server

import (
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/runtime/loopfs"
)

// volumeFlags say how volumes are kept.
type volumeFlags struct {
	Volumes string
}

// What --volumes may say.
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

// sized reports whether new volumes are to be held to their size. That they cannot is an error only where it was asked
// for.
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
