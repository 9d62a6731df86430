package kept

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeNotKept fault.Code = "files_not_kept" // no files of the task are kept any more
)
