package sent

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeDigest  fault.Code = "sent_digest"  // the digest is none, or not that of what was sent
	codeMissing fault.Code = "sent_missing" // what the job was sent is not at this member
)
