package wire

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAgree      fault.Code = "agree"      // the member learns from no other member
	codeAsk        fault.Code = "ask"        // the number of the ask is wrong
	codeCapability fault.Code = "capability" // the two members speak different versions
	codeIdentity   fault.Code = "identity"   // the server has no certificate
	codeKeys       fault.Code = "keys"       // the keys of gossip are named wrongly
	codeRoute      fault.Code = "route"      // the member has no such call
	codeSteward    fault.Code = "steward"    // the member carries no services
)
