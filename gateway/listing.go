package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strconv"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// lister is a worker that keeps its machines as JSON while they are listed: each is encoded once for each change.
type lister interface {
	Listing(app string, destroyed bool) iter.Seq2[*machine.Machine, json.Marshaler]
}

// listed is a machine of a list, with what returns its JSON.
type listed struct {
	*machine.Machine
	text json.Marshaler
}

// plain is a machine that is encoded when it is written.
type plain machine.Machine

// MarshalJSON encodes the machine.
func (m *plain) MarshalJSON() ([]byte, error) { return json.Marshal((*machine.Machine)(m)) }

// listing lists an app's machines, "" for all, for who writes them as JSON: those that keep wants. It also returns the
// workers that could not be asked, for which what they last told stands in.
func (d *directory) listing(
	ctx context.Context, app string, destroyed bool, keep func(*machine.Machine) bool,
) ([]listed, []unanswered, error) {
	ask := func(w Worker) ([]listed, error) {
		var out []listed
		if l, keeps := w.(lister); keeps {
			for m, text := range l.Listing(app, destroyed) {
				if keep(m) {
					out = append(out, listed{m, text})
				}
			}
			return out, nil
		}
		ms, err := w.Machines(ctx, app, destroyed)
		return plainly(ms, keep), err
	}
	return gather(d, d.having(app, destroyed), ask, func(id cluster.WorkerID) []listed {
		var known []*machine.Machine
		for x := range d.fleet.Snapshot().MachinesAt(id, app) {
			known = append(known, x.LastKnown(d.silence(id)))
		}
		return plainly(known, keep)
	})
}

// plainly lists those machines that keep wants.
func plainly(ms []*machine.Machine, keep func(*machine.Machine) bool) (out []listed) {
	for _, m := range ms {
		if keep(m) {
			out = append(out, listed{m, (*plain)(m)})
		}
	}
	return out
}

// firstByID returns the n machines with the lowest ids, in their order. It sorts no more than twice as many at a
// time: a page is a small part of what there is.
func firstByID(all []listed, n int) []listed {
	byID := func(a, b listed) int { return cmp.Compare(a.ID, b.ID) }
	out, last := make([]listed, 0, min(2*n, len(all))), "" // no id above last is among the first; "": not known yet
	for _, m := range all {
		if last != "" && m.ID > last {
			continue
		}
		if out = append(out, m); len(out) == 2*n {
			slices.SortFunc(out, byID)
			out, last = out[:n], out[n-1].ID
		}
	}
	slices.SortFunc(out, byID)
	return out[:min(n, len(out))]
}

// answerListed writes machines as a JSON array between what stands before and after it.
func answerListed(w http.ResponseWriter, before string, list []listed, after string) {
	all := make([][]byte, len(list))
	length := len(before) + len("[]") + max(0, len(list)-1) + len(after)
	for i, m := range list {
		b, err := m.text.MarshalJSON()
		if err != nil {
			panic("gateway: a machine does not encode: " + err.Error()) // plain data: cannot happen
		}
		all[i], length = b, length+len(b)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, 1<<16)
	_, _ = out.WriteString(before + "[")
	for i, b := range all {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(b)
	}
	_, _ = out.WriteString("]" + after)
	_ = out.Flush() // an error can only be that nobody reads any more
}

// around returns what stands before and after the machines of an answer that is encoded without any.
func around(answer any) (before, after string) {
	b, err := json.Marshal(answer)
	if err != nil {
		panic("gateway: an answer does not encode: " + err.Error()) // plain data: cannot happen
	}
	head, tail, _ := bytes.Cut(b, []byte(`"machines":[]`))
	return string(head) + `"machines":`, string(tail) + "\n"
}
