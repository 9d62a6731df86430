package api

import (
	"strings"

	"github.com/soukhq/souk/fault"
)

// Status words that clients of the Machines API look for before a sentence. Users see only the sentence.
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

// Sentence returns an error's text without its status word.
func Sentence(text string) string {
	for _, word := range []string{wordPrecondition, wordExists, wordAborted, wordDeadline, wordArgument} {
		if rest, has := strings.CutPrefix(text, word); has {
			return rest
		}
	}
	return text
}
