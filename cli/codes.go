package cli

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	CodeContext   fault.Code = "context"   // the contexts of the command line cannot be used
	CodeDecisions fault.Code = "decisions" // recorded decisions cannot be replayed, or come out otherwise
	CodeGate      fault.Code = "gate"      // a condition of the simulation's gate is not met
	codeHome      fault.Code = "home"      // the environment names no home directory
	codeMachine   fault.Code = "machine"   // no machine has this id or name
	CodeNoSouk    fault.Code = "no_souk"   // no souk of this user runs here
	codeProof     fault.Code = "proof"     // the server does not prove that it knows the token
	codeSettle    fault.Code = "settle"    // the machine is still changing when the time is up
	codeUsage     fault.Code = "usage"     // the command line is wrong
)
