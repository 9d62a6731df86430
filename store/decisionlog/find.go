package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
)

// MaxFound is the most decisions that one Find returns.
const MaxFound = 1000

// Query selects decisions; fields that are not set match all.
type Query struct {
	ID      string
	App     string
	Machine string
	Since   time.Time // only decisions at or after it
	Before  string    // only ids below: the cursor of a page
	Outcome decision.Outcome
	Limit   int // 1 to MaxFound; 0 is 50
}

// Found are decisions, newest first.
type Found struct {
	Decisions []*decision.Decision
	More      bool   // older decisions match, too
	Torn      []Torn // torn ends that were skipped
	Damage    error  // of files that could not be read completely; nil: none
}

// Find returns the newest matching decisions, once everything appended before is written.
func (l *Log) Find(ctx context.Context, q Query) (Found, error) {
	if err := l.Flush(ctx); err != nil && ctx.Err() != nil {
		return Found{}, err
	}
	return Find(ctx, l.dir, q)
}

// Find searches a log's files, newest first, and stops when it has enough.
func Find(ctx context.Context, path string, q Query) (Found, error) {
	names, err := Files(path)
	if err != nil {
		return Found{}, err
	}
	if q.Limit <= 0 || q.Limit > MaxFound {
		q.Limit = 50
	}
	f := finder{ctx: ctx, q: q}
	for _, name := range slices.Backward(names) {
		err := f.searchFile(name)
		switch code := fault.CodeOf(err); {
		case code == CodeLogDamaged:
			f.out.Damage = errors.Join(f.out.Damage, err)
		case code == codeDecisionLog && fault.Is(err, fault.NotFound):
			// it was removed as the oldest file
		case err != nil:
			return f.out, err
		}
		if len(f.out.Decisions) > q.Limit {
			break
		}
	}
	if f.out.More = len(f.out.Decisions) > q.Limit; f.out.More {
		f.out.Decisions = f.out.Decisions[:q.Limit]
	}
	return f.out, nil
}

type finder struct {
	ctx context.Context
	q   Query
	out Found
}

func (f *finder) searchFile(name string) error {
	r, err := openFile(name)
	if err != nil {
		return err
	}
	defer r.close()
	frames, torn, damage := r.readFrames()
	if torn != nil {
		f.out.Torn = append(f.out.Torn, *torn)
	}
	for _, frame := range slices.Backward(frames) {
		if err := context.Cause(f.ctx); err != nil {
			return err
		}
		if !f.mayHold(&frame.meta) {
			continue
		}
		plain, err := r.readFrame(&frame)
		if err != nil {
			torn, err := r.tornBody(&frame, err)
			if torn != nil {
				f.out.Torn = append(f.out.Torn, *torn)
			}
			damage = errors.Join(damage, err)
			continue
		}
		if err := f.searchFrame(r, &frame, plain); err != nil {
			return err
		}
		if len(f.out.Decisions) > f.q.Limit {
			return nil
		}
	}
	return damage
}

// mayHold reports whether a frame can have a matching decision.
func (f *finder) mayHold(m *meta) bool {
	q := &f.q
	if at, ok := millisOf(q.ID); ok && (m.last < at || m.first > at+idSlack) {
		return false
	}
	if at, ok := millisOf(q.Before); ok && m.first > at+idSlack {
		return false
	}
	return (q.Since.IsZero() || m.last >= q.Since.UnixMilli()) &&
		(q.App == "" || m.mayHaveMark(nameMark(q.App))) && (q.Machine == "" || m.mayHaveMark(nameMark(q.Machine)))
}

// idSlack is how many milliseconds a decision's time may be after that of its ID, which is drawn before the view is
// read.
const idSlack = 5 * 60 * 1000

// millisOf returns the time in a ULID: its first ten digits.
func millisOf(id string) (ms int64, ok bool) {
	if len(id) != 26 {
		return 0, false
	}
	for i := range 10 {
		digit := strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", id[i])
		if digit < 0 {
			return 0, false
		}
		ms = ms<<5 | int64(digit)
	}
	return ms, true
}

func (f *finder) searchFrame(r *reader, at *frameAt, plain []byte) error {
	var here []*decision.Decision
	err := eachLine(plain, func(raw []byte) error {
		if !bytes.HasPrefix(raw, []byte(`{"decision":`)) || !containsText(raw, f.q.ID) || !containsText(raw, f.q.Machine) ||
			!containsText(raw, f.q.App) {
			return nil
		}
		var l decision.Line
		if err := json.Unmarshal(raw, &l); err != nil || l.Decision == nil {
			return r.damagedAt(at.at, "a line is no decision")
		}
		if f.matchesDecision(l.Decision) {
			here = append(here, l.Decision)
		}
		return nil
	})
	slices.Reverse(here)
	f.out.Decisions = append(f.out.Decisions, here...)
	return err
}

func containsText(raw []byte, what string) bool {
	return what == "" || bytes.Contains(raw, []byte(what))
}

func (f *finder) matchesDecision(d *decision.Decision) bool {
	q := &f.q
	return (q.ID == "" || d.ID == q.ID) && (q.App == "" || d.Request.App == q.App) &&
		(q.Machine == "" || d.Request.Machine == q.Machine) &&
		(q.Since.IsZero() || !d.At.Before(q.Since)) && (q.Before == "" || d.ID < q.Before) &&
		(q.Outcome == "" || d.Outcome == q.Outcome)
}
