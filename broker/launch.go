package broker

import "github.com/soukhq/souk/machine"

// CheckLaunch fills in a launch's defaults, and returns an error if it asks for something impossible.
func CheckLaunch(l *machine.Launch) error {
	l.Normalize()
	where := l.Region
	l.Region = "" // a region expression; Regions checks it
	err := l.Validate()
	l.Region = where
	return err
}
