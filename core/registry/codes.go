package registry

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeBadSignature     fault.Code = "bad_signature"     // what a member wrote is not signed by it
	codeClockAhead       fault.Code = "clock_ahead"       // the writer's clock is ahead of this one
	codeClockBehind      fault.Code = "clock_behind"      // this worker's clock is behind what it has written
	codeIncarnation      fault.Code = "incarnation"       // the incarnation is not above the last one
	codeIncarnationAhead fault.Code = "incarnation_ahead" // the incarnation lies more than a day ahead
	codeNotBegun         fault.Code = "not_begun"         // the worker has not announced what it has
	codeNotOwner         fault.Code = "not_owner"         // the record is another worker's
	codeOddRecord        fault.Code = "odd_record"        // the record is not of a form that is kept
	codeOwnerFull        fault.Code = "owner_full"        // the worker has as many records as the registry keeps of one
	codeStaleDraft       fault.Code = "stale_draft"       // the record was drafted before a later one
	codeTooManyObjects   fault.Code = "too_many_objects"  // there are as many objects as are kept
	codeTooManyOwners    fault.Code = "too_many_owners"   // there are as many workers as are kept
	codeUnproven         fault.Code = "unproven"          // the update says more than its owner has signed
	codeUnsignedHead     fault.Code = "unsigned_head"     // the update lacks its owner's signature
)
