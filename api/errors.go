package api

import (
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// ErrorBody is the body of every error. Clients match the code, Status and fragments of Error.
type ErrorBody struct {
	Error  string `json:"error"`
	Status string `json:"status,omitempty"` // insufficient_capacity, volume_placement_capacity, name_taken, or absent
	Souk   Reason `json:"souk"`
}

// Reason is an error for programs; clients of the Machines API skip it.
type Reason struct {
	Kind       fault.Kind          `json:"kind"`
	Code       fault.Code          `json:"code,omitempty"`
	Scope      fault.Scope         `json:"scope,omitempty"`
	Resource   string              `json:"resource,omitempty"`
	RetryAfter float64             `json:"retry_after,omitempty"` // seconds
	Machine    string              `json:"machine,omitempty"`     // the machine that has the name
	Clauses    []machine.Clause    `json:"clauses,omitempty"`     // why a worker refused
	Candidates []machine.Candidate `json:"candidates,omitempty"`  // each worker's answer
	Pending    decision.Pending    `json:"pending,omitempty"`     // why nothing was placed, typed
	Decision   string              `json:"decision,omitempty"`    // its id, for souk explain
	Request    string              `json:"request,omitempty"`     // the fly-request-id, to find in the log
}
