package broker

import "github.com/soukhq/souk/machine"

// CheckLaunch fills a launch in, and says what of it cannot be honoured.
func CheckLaunch(l *machine.Launch) error {
	l.Normalize()
	where := l.Region
	l.Region = "" // an expression, which Regions judges
	err := l.Validate()
	l.Region = where
	return err
}
