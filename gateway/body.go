package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
)

// handlersBody is a request's body while its handler runs. No one may read it after the handler has returned: the
// server then reads the next request from the connection, and panics on a concurrent read.
type handlersBody struct {
	io.ReadCloser
	mu    sync.Mutex
	over  bool
	busy  int // reads under way
	reads sync.WaitGroup
}

// Read reads the body; it fails once the handler has returned.
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

// endReads ends running reads and fails later ones. A writer without deadlines (in tests) has no connection to wait
// for.
func (b *handlersBody) endReads(w http.ResponseWriter) {
	b.mu.Lock()
	b.over = true
	busy := b.busy > 0
	b.mu.Unlock()
	if busy && http.NewResponseController(w).SetReadDeadline(time.Now()) == nil {
		b.reads.Wait()
	}
}

// bothWays lets a handler write its answer while it reads its body. The connection is closed afterwards: the rest of
// the body would be read as a request.
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
