package api

import (
	"strings"

	"github.com/soukhq/souk/fault"
)

// Words that clients of the Machines API look for in front of a sentence. People are told the sentence alone.
const (
	wordPrecondition = "failed_precondition: "
	wordExists       = "already_exists: "
	wordAborted      = "aborted: "
	wordDeadline     = "deadline_exceeded: "
	wordArgument     = "invalid_argument: "
)

// StatusWord returns the word in front of an error's sentence in an answer of the Machines API; "" for most.
func StatusWord(e *fault.Error) string {
	switch e.Code {
	case fault.CodeNameInUse, CodeHostInUse, fault.CodePortInUse:
		return wordExists
	case fault.CodeConcurrentUpdate, CodeNoVolumeCapacity, CodeVolumeNeverFits:
		return wordAborted
	case CodeWaitDestroyed, CodeWaitVersion:
		return wordPrecondition
	case CodeState:
		return wordArgument
	}
	switch {
	case e.Kind == fault.Precondition:
		return wordPrecondition
	case e.Kind == fault.Timeout:
		return wordDeadline
	case e.Kind == fault.Exhausted && e.Scope == fault.ScopeHost &&
		(e.Code == fault.CodeNoCapacity || e.Code == fault.CodeNeverFits):
		return wordAborted
	}
	return ""
}

// Sentence returns what an answer says without its word.
func Sentence(text string) string {
	for _, word := range []string{wordPrecondition, wordExists, wordAborted, wordDeadline, wordArgument} {
		if rest, has := strings.CutPrefix(text, word); has {
			return rest
		}
	}
	return text
}
