package remote

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeRegistry            fault.Code = "registry"             // the registry is not an address
	codeRegistryAnswer      fault.Code = "registry_answer"      // the registry's answer is not one
	codeRegistryBusy        fault.Code = "registry_busy"        // the registry has too many requests
	codeRegistryFailed      fault.Code = "registry_failed"      // the registry failed
	codeRegistryForbidden   fault.Code = "registry_forbidden"   // the registry forbids it with these credentials
	codeRegistryHangs       fault.Code = "registry_hangs"       // the registry sent nothing
	codeRegistryLogin       fault.Code = "registry_login"       // the registry does not take the credentials
	codeRegistryPlain       fault.Code = "registry_plain"       // the registry speaks plain HTTP
	codeRegistryReach       fault.Code = "registry_reach"       // the registry sent souk where it does not go
	codeRegistryRedirect    fault.Code = "registry_redirect"    // the registry redirects without an end
	codeRegistryUnreachable fault.Code = "registry_unreachable" // the registry cannot be reached
)
