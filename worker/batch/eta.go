package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/core/eta"
)

// etaFile is the name of the file with what was learnt of forecasts, and writeETAEvery how often it is written.
const (
	etaFile       = "eta.json"
	writeETAEvery = time.Minute
)

// readETA takes back what was learnt of forecasts, as far as a file says so.
func (b *Buyer) readETA() {
	raw, err := os.ReadFile(filepath.Join(b.o.Dir, etaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var saved eta.Saved
	if err == nil {
		err = json.Unmarshal(raw, &saved)
	}
	if err != nil {
		b.log.Warn("what came of earlier forecasts is not known any more; jobs have no ETA until some have ended",
			"err", err)
		return
	}
	b.dispatcher.RestoreETA(saved)
}

// keepETA writes what was learnt of forecasts, now and then.
func (b *Buyer) keepETA(now time.Time) {
	if now.Sub(b.wroteETA) >= writeETAEvery {
		b.wroteETA = now
		b.writeETA()
	}
}

// writeETA writes what was learnt of forecasts. It is not fsynced: at worst a host that goes down forgets it.
func (b *Buyer) writeETA() {
	path := filepath.Join(b.o.Dir, etaFile)
	raw, err := json.Marshal(b.dispatcher.SaveETA())
	if err == nil && bytes.Equal(raw, b.eta) {
		return
	}
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if b.eta = raw; err != nil {
		b.eta = nil
	}
	if err != nil {
		b.log.Warn("what came of forecasts could not be written; a restart would forget it", "err", err)
	}
}
