package images

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
)

// board is what goes on, on a terminal: a line for each store, which are written over.
type board struct {
	c    *cli.Env
	w    io.Writer
	on   bool
	stop chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	lines []*line
	shown int // lines on the screen
}

// drawEvery is not more often than eyes see.
const drawEvery = 100 * time.Millisecond

// line is how far one pull or load is.
type line struct {
	mu    sync.Mutex
	name  string // "" where there is only one
	order []string
	of    map[string]cluster.ImageProgress
	ended string
}

// newBoard shows lines until it is closed.
func newBoard(c *cli.Env, names ...string) *board {
	b := &board{c: c, w: cli.Raw(c.Err), on: !c.JSON && cli.IsTerminal(c.Err), stop: make(chan struct{})}
	for _, n := range names {
		b.lines = append(b.lines, &line{name: n, of: map[string]cluster.ImageProgress{}})
	}
	if b.on {
		b.done.Go(b.draw)
	}
	return b
}

func (b *board) draw() {
	every := time.NewTicker(drawEvery)
	defer every.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-every.C:
			b.show()
		}
	}
}

// show writes the lines over those that stand there. Those that do not go onto the screen are left out.
func (b *board) show() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, high := b.c.ScreenSize()
	most := b.c.ColumnsOf(b.c.Err) - 1 // in the last column some terminals begin a new line
	var out strings.Builder
	b.back(&out)
	for _, l := range b.lines[:min(len(b.lines), max(1, high-2))] {
		text := strings.Map(cli.Printable, l.text())
		if most > 0 {
			text = cli.CutText(text, most)
		}
		fmt.Fprintf(&out, "%s\n", text)
		b.shown++
	}
	_, _ = io.WriteString(b.w, out.String()) // a terminal that is gone has nobody to tell
}

// back goes to where the lines begin, and clears them.
func (b *board) back(out *strings.Builder) {
	if b.shown > 0 {
		fmt.Fprintf(out, "\x1b[%dA", b.shown)
	}
	if b.on {
		out.WriteString("\r\x1b[J")
	}
	b.shown = 0
}

// close takes the lines away.
func (b *board) close() {
	close(b.stop)
	b.done.Wait()
	var out strings.Builder
	if b.back(&out); b.on {
		_, _ = io.WriteString(b.w, out.String())
	}
}

// tell takes how far a blob is.
func (l *line) tell(p cluster.ImageProgress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.of[p.Blob]; !known {
		l.order = append(l.order, p.Blob)
	}
	l.of[p.Blob] = p
}

// end says how it ended.
func (l *line) end(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = text
}

// sums adds up the blobs: bytes that are there, that there will be, and that had to be sent.
func (l *line) sums() (done, size, sent int64, ready int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.of {
		done, size = done+p.Done, size+p.Size
		if !p.Here {
			sent += p.Done
		}
		if p.Done == p.Size {
			ready++
		}
	}
	return done, size, sent, ready
}

const (
	barWidth = 20
	asking   = "asking the registry"
)

func (l *line) text() string {
	done, all, _, ready := l.sums()
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if l.name != "" {
		text = l.name + "  "
	}
	switch {
	case l.ended != "":
		return text + l.ended
	case len(l.order) == 0:
		return text + asking
	case all == 0: // of a load whose end nobody knows
		return text + size(done)
	}
	full := int(barWidth * min(done, all) / all)
	return fmt.Sprintf("%s[%s%s] %s of %s, %d of %d parts", text, strings.Repeat("#", full),
		strings.Repeat(".", barWidth-full), size(done), size(all), ready, len(l.order))
}
