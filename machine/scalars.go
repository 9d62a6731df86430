package machine

import (
	"encoding/json"
	"time"

	"github.com/soukhq/souk/fault"
)

// Duration is a time.Duration that decodes "15s" or an integer of nanoseconds, and encodes as "15s".
type Duration struct{ time.Duration }

// MarshalJSON writes the duration as Go prints it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string or an integer of nanoseconds.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	var n int64
	if err := json.Unmarshal(raw, &n); err == nil {
		d.Duration = time.Duration(n)
		return nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fault.New(fault.Invalid, codeDuration,
			"a duration is a text such as \"15s\" or a whole number of nanoseconds, not %.80s", raw)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fault.New(fault.Invalid, codeDuration,
			"%.80q is not a duration; write it as \"15s\", \"2m\" or \"500ms\"", s)
	}
	d.Duration = v
	return nil
}

// Autostop says what the proxy does with an idle machine: "off", "stop" or "suspend".
type Autostop string

// MarshalJSON writes booleans for the two values that clients know as booleans.
func (a Autostop) MarshalJSON() ([]byte, error) {
	switch a {
	case "stop":
		return []byte("true"), nil
	case "suspend":
		return []byte(`"suspend"`), nil
	}
	return []byte("false"), nil
}

// UnmarshalJSON accepts true, false, "off", "stop" and "suspend".
func (a *Autostop) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case "null":
	case "false", `"off"`:
		*a = "off"
	case "true", `"stop"`:
		*a = "stop"
	case `"suspend"`:
		*a = "suspend"
	default:
		return fault.New(fault.Invalid, codeAutostop,
			"autostop is true, false, \"off\", \"stop\" or \"suspend\", not %.80s", raw)
	}
	return nil
}

// Persist says how long a machine's own files are kept: "", "never", "restart" or "always".
type Persist string

// UnmarshalJSON accepts the names and the numbers 0 to 3 that older clients send.
func (p *Persist) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case "null":
	case `""`, `"none"`, "0":
		*p = ""
	case `"never"`, "1":
		*p = "never"
	case `"restart"`, "2":
		*p = "restart"
	case `"always"`, "3":
		*p = "always"
	default:
		return fault.New(fault.Invalid, codePersist, "persist is \"never\", \"restart\" or \"always\", not %.80s", raw)
	}
	return nil
}
