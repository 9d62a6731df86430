package certs

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeACME          fault.Code = "acme"           // the ACME authority gives no certificate
	codeOrders        fault.Code = "acme_orders"    // too many certificates were asked for in a short time
	codeNoApp         fault.Code = "no_app"         // no app answers to the name
	codeACMEAccount   fault.Code = "acme_account"   // the account at the ACME authority lacks its keys
	codeACMEDirectory fault.Code = "acme_directory" // the text is no ACME directory
	codeACMEDoor      fault.Code = "acme_door"      // the ACME authority could not reach this proxy
	codeACMETerms     fault.Code = "acme_terms"     // nobody agreed to the terms of the ACME authority
	codeNoCertificate fault.Code = "no_certificate" // there is no certificate for the name yet
	codeNoChallenge   fault.Code = "no_challenge"   // the ACME authority was not asked about the name
)
