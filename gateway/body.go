package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
)

// handlersBody is a request's body while its handler runs. Once that has returned nobody reads it: the server then takes
// the next request from the connection, and panics where another still reads.
type handlersBody struct {
	io.ReadCloser
	mu    sync.Mutex
	over  bool
	busy  int // reads under way
	reads sync.WaitGroup
}

// Read reads, while the handler runs.
func (b *handlersBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	b.busy++
	b.reads.Add(1)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.busy--
		b.mu.Unlock()
		b.reads.Done()
	}()
	return b.ReadCloser.Read(p)
}

// endReads ends the reads that are under way and lets none begin. What cannot have deadlines has no connection either.
func (b *handlersBody) endReads(w http.ResponseWriter) {
	b.mu.Lock()
	b.over = true
	busy := b.busy > 0
	b.mu.Unlock()
	if busy && http.NewResponseController(w).SetReadDeadline(time.Now()) == nil {
		b.reads.Wait()
	}
}

// bothWays has a handler write its answer while it reads its body. Its connection is not used again: what is left of the
// body would be taken for a request.
func bothWays(w http.ResponseWriter, r *http.Request) error {
	err := http.NewResponseController(w).EnableFullDuplex()
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fault.Wrap(err, fault.Internal, codeDuplex, "this connection cannot carry both directions at once")
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	return nil
}
