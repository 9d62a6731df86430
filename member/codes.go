package member

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAuthority      fault.Code = "authority"        // the member does not hold the cluster's CA
	codeClock          fault.Code = "clock"            // the clocks of the members differ
	codeGossipKeys     fault.Code = "gossip_keys"      // the keys of gossip cannot be written
	codeIssuers        fault.Code = "issuers"          // the addresses of the issuers cannot be saved
	codeMemberNotFound fault.Code = "member_not_found" // no member has this id
	codeNotEntitled    fault.Code = "not_entitled"     // the member wrote what it may not
	codeNotRemoved     fault.Code = "not_removed"      // the member was not removed
	codeNoTwin         fault.Code = "no_twin"          // no other member of this id is alive
	codeRejoined       fault.Code = "rejoined"         // the member was removed and has joined anew
	codeRenew          fault.Code = "renew"            // an issuer is needed and does not answer
	codeSelf           fault.Code = "self"             // the member was asked to remove itself
	codeTokenExists    fault.Code = "token_exists"     // a good token has this name
	codeTokenLife      fault.Code = "token_life"       // the life of the token is out of range
	codeTokenLine      fault.Code = "token_line"       // the token descends from too many other tokens
	codeTokenName      fault.Code = "token_name"       // the text cannot be a token's name
	codeTokenNotFound  fault.Code = "token_not_found"  // no good token has this name
	codeUnsigned       fault.Code = "unsigned"         // a message about the member is not signed
	codeWorkerBack     fault.Code = "worker_back"      // the worker is reachable again
	codeWorkerUnknown  fault.Code = "worker_unknown"   // the worker has not reported its machines yet
)
