package machine

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAutostop     fault.Code = "autostop"      // the text is no way to stop by itself
	CodeBody         fault.Code = "body"          // the body of the request cannot be read
	CodeConfig       fault.Code = "config"        // the config is missing or wrong
	codeCPU          fault.Code = "cpu"           // the amount of CPU is out of range
	codeDepth        fault.Code = "depth"         // the JSON is nested too deeply
	codeDuplicate    fault.Code = "duplicate"     // the JSON gives a field twice
	codeDuration     fault.Code = "duration"      // the text is no duration
	CodeImage        fault.Code = "image"         // the image is named wrongly, or is not here
	CodeJSON         fault.Code = "json"          // the JSON cannot be read or written
	codeNoAddress    fault.Code = "no_address"    // the machine has no network to be reached in
	codePersist      fault.Code = "persist"       // the text is no way to persist
	CodePort         fault.Code = "port"          // the port is out of range
	CodeReplica      fault.Code = "replica"       // the machine is a replica, or the replica is wrong
	codeTooLong      fault.Code = "too_long"      // the text is too long
	codeUnknownField fault.Code = "unknown_field" // the JSON has a field that is not known
	CodeUnsupported  fault.Code = "unsupported"   // souk does not support this field
	codeWrongType    fault.Code = "wrong_type"    // a field of the JSON has the wrong type
)
