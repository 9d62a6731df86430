package remote

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeRegistry            fault.Code = "registry"             // the registry is not an address
	codeRegistryAnswer      fault.Code = "registry_answer"      // the registry's answer is unexpected
	codeRegistryBusy        fault.Code = "registry_busy"        // the registry has too many requests
	codeRegistryFailed      fault.Code = "registry_failed"      // the registry reports an internal error
	codeRegistryForbidden   fault.Code = "registry_forbidden"   // the registry forbids it with these credentials
	codeRegistryHangs       fault.Code = "registry_hangs"       // the registry sent nothing
	codeRegistryLogin       fault.Code = "registry_login"       // the registry rejects the credentials
	codeRegistryPlain       fault.Code = "registry_plain"       // the registry speaks HTTP without TLS
	codeRegistryReach       fault.Code = "registry_reach"       // the registry leads to a forbidden address
	codeRegistryRedirect    fault.Code = "registry_redirect"    // the registry redirects endlessly
	codeRegistryUnreachable fault.Code = "registry_unreachable" // the registry cannot be reached
)
