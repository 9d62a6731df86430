package pki

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeCA                 fault.Code = "ca"                  // the cluster's CA is missing or failed
	codeCAExists           fault.Code = "ca_exists"           // the directory holds a CA already
	codeCAExpired          fault.Code = "ca_expired"          // the CA's root has expired
	codeCertificateEarly   fault.Code = "certificate_early"   // the certificate is not valid yet
	CodeCertificateExpired fault.Code = "certificate_expired" // the certificate has expired
	codeCredentials        fault.Code = "credentials"         // the member's key or certificate is missing or wrong
	codeCSR                fault.Code = "csr"                 // the certificate request is wrong
	CodeIssuer             fault.Code = "issuer"              // the member is not an issuer, or no issuer is known
	codeNotJoined          fault.Code = "not_joined"          // the directory holds no certificate
	codeSign               fault.Code = "sign"                // the message could not be signed
	CodeSignature          fault.Code = "signature"           // the signature is invalid
	codeTokenExpired       fault.Code = "token_expired"       // the join token has expired
	codeTokenID            fault.Code = "token_id"            // the join token is for another id
	CodeTokenRole          fault.Code = "token_role"          // the token does not give the role
	CodeTokens             fault.Code = "tokens"              // too many tokens, or some are revoked with their member
	codeTokenUnknown       fault.Code = "token_unknown"       // the issuer does not know the join token
	codeTokenUsed          fault.Code = "token_used"          // the join token has been used
)
