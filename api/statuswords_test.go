package api_test

import (
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// TestStatusWordIsPrefixedAndStrippedByTheClient: what a client of the Machines API reads in front of a sentence, and that souk's own client takes it away.
func TestStatusWordIsPrefixedAndStrippedByTheClient(t *testing.T) {
	const text = "machine not running; start it first"
	for want, e := range map[string]*fault.Error{
		"failed_precondition: ": fault.New(fault.Precondition, "not_running", text),
		"already_exists: ":      fault.New(fault.Conflict, "name_taken", text),
		"aborted: ":             {Kind: fault.Exhausted, Code: "no_capacity", Scope: fault.ScopeHost, Text: text},
		"deadline_exceeded: ":   fault.New(fault.Timeout, "wait", text),
		"":                      fault.New(fault.NotFound, "machine_not_found", text),
	} {
		word := api.StatusWord(e)
		if word != want {
			t.Errorf("%s %s: %q, not %q", e.Kind, e.Code, word, want)
		}
		if got := api.Sentence(word + text); got != text {
			t.Errorf("%q", got)
		}
	}
}
