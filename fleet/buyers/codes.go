package buyers

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeJobMember fault.Code = "job_member" // the member that keeps the job, or may keep it, does not answer
)
