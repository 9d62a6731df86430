package gateway

import (
	"net/http"

	"github.com/soukhq/souk/machine"
)

// readLaunch reads the body of a create or an update: a launch that can be honoured as far as the body tells.
func readLaunch(w http.ResponseWriter, r *http.Request) (*machine.Launch, error) {
	raw, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	l, err := machine.DecodeLaunch(raw)
	if err != nil {
		return nil, err
	}
	return l, checkLaunch(l)
}

// checkLaunch fills a launch in, and says what of it cannot be honoured.
func checkLaunch(l *machine.Launch) error {
	l.Normalize()
	where := l.Region
	l.Region = "" // an expression, which regions judges
	err := l.Validate()
	l.Region = where
	return err
}
