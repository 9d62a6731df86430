package releases

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeCommandPending  fault.Code = "command_pending"   // the release's first command has not ended well
	codeCounts          fault.Code = "counts"            // no counts of replicas are given
	codeJobRuns         fault.Code = "job_runs"          // a run of the job is under way
	codeReleaseBody     fault.Code = "release_body"      // the content of the release is not here
	codeReleaseNotFound fault.Code = "release_not_found" // the app has no such release
	codeVolumeSize      fault.Code = "volume_size"       // the volume has another size than the release wants
)
