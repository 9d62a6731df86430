package broker

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAppGone       fault.Code = "app_gone"        // the app was deleted while its machine was made
	codeClosing       fault.Code = "closing"         // this souk is ending
	codeHalfMoved     fault.Code = "half_moved"      // a move of a machine stopped half-way
	codeKeyOpen       fault.Code = "key_open"        // how the create with this key ended is unknown
	codeMounts        fault.Code = "mounts"          // a machine with a volume cannot be copied
	codeMovedOften    fault.Code = "moved_often"     // the machine was moved too often to be followed
	codeRegion        fault.Code = "region"          // the region expression is wrong
	codeStartedAgain  fault.Code = "started_again"   // the machine was started while it was to be moved
	codeStrategy      fault.Code = "strategy"        // no placement strategy has this name
	codeTooManyClaims fault.Code = "too_many_claims" // too many named creates are under way
)
