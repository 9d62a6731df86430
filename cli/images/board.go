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

// board shows progress on a terminal: one line per store, redrawn in place.
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

// drawEvery is the shortest time between two redraws.
const drawEvery = 100 * time.Millisecond

// line is the progress of one pull or load.
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

// show redraws the lines. Lines that do not fit on the screen are left out.
func (b *board) show() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, high := b.c.ScreenSize()
	most := b.c.ColumnsOf(b.c.Err) - 1 // some terminals wrap at the last column
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
	_, _ = io.WriteString(b.w, out.String()) // fails only if the terminal is gone
}

// back moves the cursor to the first line, and clears the lines.
func (b *board) back(out *strings.Builder) {
	if b.shown > 0 {
		fmt.Fprintf(out, "\x1b[%dA", b.shown)
	}
	if b.on {
		out.WriteString("\r\x1b[J")
	}
	b.shown = 0
}

// close removes the lines.
func (b *board) close() {
	close(b.stop)
	b.done.Wait()
	var out strings.Builder
	if b.back(&out); b.on {
		_, _ = io.WriteString(b.w, out.String())
	}
}

// tell updates the progress of a blob.
func (l *line) tell(p cluster.ImageProgress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.of[p.Blob]; !known {
		l.order = append(l.order, p.Blob)
	}
	l.of[p.Blob] = p
}

// end sets the final text of the line.
func (l *line) end(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = text
}

// sums adds up the blobs: bytes present, bytes in total, and bytes that had to be transferred.
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
	case all == 0: // a load of unknown size
		return text + cli.Bytes(done)
	}
	full := int(barWidth * min(done, all) / all)
	return fmt.Sprintf("%s[%s%s] %s of %s, %d of %d parts", text, strings.Repeat("#", full),
		strings.Repeat(".", barWidth-full), cli.Bytes(done), cli.Bytes(all), ready, len(l.order))
}
