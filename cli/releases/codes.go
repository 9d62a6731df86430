package releases

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeElsewhere fault.Code = "elsewhere" // the machine went to another worker than the one named
	codeGone      fault.Code = "gone"      // the machine left its worker and did not arrive at the other
	codeOvertaken fault.Code = "overtaken" // another request replaced this one meanwhile
	codeUndone    fault.Code = "undone"    // the release failed and was undone
)
