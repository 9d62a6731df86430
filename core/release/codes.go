package release

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeBooking          fault.Code = "booking"            // the room held for a release is named wrongly
	codeChange           fault.Code = "change"             // no change of a rollout has this name
	codeGroup            fault.Code = "group"              // the service has no such group
	codeHead             fault.Code = "head"               // the head of a service is wrong
	codeMoves            fault.Code = "moves"              // too many machines of the service would move at once
	codeNoCanary         fault.Code = "no_canary"          // the release has no canary to promote
	codeNoEarlierRelease fault.Code = "no_earlier_release" // there is no release to go back to
	codeProgress         fault.Code = "progress"           // the progress of a rollout is invalid
	codeReleaseSize      fault.Code = "release_size"       // the release is too large
	codeRolloutOver      fault.Code = "rollout_over"       // the rollout has ended
	codeSteps            fault.Code = "steps"              // the number of canary steps is wrong
	codeTenure           fault.Code = "tenure"             // a steward's report on its service is invalid
)
