package gateway

import (
	"net/http"
	"path"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// filePath reads path=, which names something inside the machine. The runtime keeps it inside, whatever it says.
func filePath(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if p == "" || strings.ContainsRune(p, 0) || len(p) > 4096 {
		return "", fault.New(fault.Invalid, "path", "path= must name a file or a directory of the machine, in at most 4096 bytes")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", fault.New(fault.Invalid, "path", "path=%q leaves the machine; name a path without \"..\"", clip(p, 80))
		}
	}
	return path.Clean(p), nil
}

// begunWriter knows whether anything was written.
type begunWriter struct {
	w     http.ResponseWriter
	begun bool
}

// Write sends the headers with the first byte.
func (b *begunWriter) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", api.Tar)
	}
	return b.w.Write(p)
}

func (g *consoleAPI) copyOut(w http.ResponseWriter, r *http.Request) error {
	p, err := filePath(r)
	if err != nil {
		return err
	}
	f, err := g.directory.named(r)
	if err != nil {
		return err
	}
	b := &begunWriter{w: w}
	err = f.worker.CopyOut(r.Context(), r.PathValue("app"), f.machine.ID, p, b)
	if err != nil && b.begun {
		g.log.WarnContext(r.Context(), "a copy broke off", "request", requestID(r), "error", err)
		panic(http.ErrAbortHandler) // a tar stream that just ended would look whole
	}
	return err
}

func (g *consoleAPI) copyIn(w http.ResponseWriter, r *http.Request) error {
	p, err := filePath(r)
	if err != nil {
		return err
	}
	f, err := g.directory.named(r)
	if err != nil {
		return err
	}
	if err := f.worker.CopyIn(r.Context(), r.PathValue("app"), f.machine.ID, p, r.Body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
