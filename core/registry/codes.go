package registry

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeBadSignature     fault.Code = "bad_signature"     // a record, head or object lacks a valid signature
	codeClockAhead       fault.Code = "clock_ahead"       // the writer's clock is ahead of this one
	codeClockBehind      fault.Code = "clock_behind"      // this worker's clock is behind what it has written
	codeIncarnation      fault.Code = "incarnation"       // the incarnation is not above the last one
	codeIncarnationAhead fault.Code = "incarnation_ahead" // the incarnation lies more than a day ahead
	codeNotBegun         fault.Code = "not_begun"         // the worker has not announced what it has
	codeNotOwner         fault.Code = "not_owner"         // the record is another worker's
	codeOddRecord        fault.Code = "odd_record"        // the record is not of a form that is kept
	codeOwnerFull        fault.Code = "owner_full"        // the worker has reached its limit of records in the registry
	codeStaleDraft       fault.Code = "stale_draft"       // the record was drafted before a later one
	codeTooManyObjects   fault.Code = "too_many_objects"  // the limit of objects is reached
	codeTooManyOwners    fault.Code = "too_many_owners"   // the limit of workers is reached
	codeUnproven         fault.Code = "unproven"          // the update has versions that its owner has not signed
	codeUnsignedHead     fault.Code = "unsigned_head"     // the update lacks its owner's signature
)
