package wire

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAgree      fault.Code = "agree"      // the member does not learn from other members
	codeAsk        fault.Code = "ask"        // the number of the ask is wrong
	codeCapability fault.Code = "capability" // the two members speak incompatible versions
	codeIdentity   fault.Code = "identity"   // the server has no certificate
	codeKeys       fault.Code = "keys"       // the arguments about gossip keys are invalid
	codeRoute      fault.Code = "route"      // the member has no such call
	codeSteward    fault.Code = "steward"    // the member has no steward
)
