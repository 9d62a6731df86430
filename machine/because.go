package machine

import "fmt"

// Because returns the newest reason that the machine's events give, as the end of a sentence: ": REASON", or "".
func (m *Machine) Because() string {
	for _, e := range m.Events {
		if e.Message != "" {
			return ": " + e.Message
		}
		if e.Request != nil && e.Request.ExitEvent != nil {
			return fmt.Sprintf(": its program ended with exit code %d", e.Request.ExitEvent.ExitCode)
		}
	}
	return ""
}
