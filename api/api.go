// Package api is the HTTP API in Go's words: every request and answer that is no noun of a lower package, and the table of
// routes. The gateway serves it and the client calls it, so no shape is written down twice.
//
// A struct here is a wire shape and nothing more: it has no behaviour, and no zero value that means something else than
// its JSON. Machines, volumes and their parts are in package machine; workers and members in package cluster; decisions,
// quotes and jobs are described where they are made.
package api

// SetValue is the body that sets one value: of a secret, or of a key of metadata.
type SetValue struct {
	Value *string `json:"value"`
}

// OK is the answer of requests that have nothing else to tell.
type OK struct {
	OK bool `json:"ok"`
}
