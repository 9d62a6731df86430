package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/soukhq/souk/fleet/find"
)

// firstByID returns the n machines with the lowest ids, sorted. It sorts at most 2n at a time, since a page is a small
// part of all machines.
func firstByID(all []find.Listed, n int) []find.Listed {
	byID := func(a, b find.Listed) int { return cmp.Compare(a.ID, b.ID) }
	out := make([]find.Listed, 0, min(2*n, len(all)))
	last := "" // ids above it are not among the first n; "": not known yet
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

// answerListed writes machines as a JSON array between the texts before and after.
func answerListed(w http.ResponseWriter, before string, list []find.Listed, after string) {
	all := make([][]byte, len(list))
	length := len(before) + len("[]") + max(0, len(list)-1) + len(after)
	for i, m := range list {
		b, err := m.Text.MarshalJSON()
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
	_ = out.Flush() // an error means that the client is gone
}

// splitAround encodes an answer without machines, and returns the texts before and after their array.
func splitAround(answer any) (before, after string) {
	b, err := json.Marshal(answer)
	if err != nil {
		panic("gateway: an answer does not encode: " + err.Error()) // plain data: cannot happen
	}
	head, tail, _ := bytes.Cut(b, []byte(`"machines":[]`))
	return string(head) + `"machines":`, string(tail) + "\n"
}
