package gateway

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAlone           fault.Code = "alone"             // this souk is no member of a cluster
	codeBid             fault.Code = "bid"               // the bid lacks its app or its config
	codeCommand         fault.Code = "command"           // the command is missing or cannot be split
	codeCount           fault.Code = "count"             // the number of machines is out of range
	codeCrossSite       fault.Code = "cross_site"        // the request comes from another site's page
	codeDecision        fault.Code = "decision"          // the decision is not kept here
	codeDuplex          fault.Code = "duplex"            // the connection cannot carry both directions at once
	codeSent            fault.Code = "sent"              // what a job is sent, or the files of a task, are not here
	codeIndex           fault.Code = "index"             // the text is no index of a task
	codeJSONField       fault.Code = "json_field"        // the JSON has a field that is not known
	codeJSONType        fault.Code = "json_type"         // a field of the JSON has the wrong type
	codeKeyAge          fault.Code = "key_age"           // the age of the idempotency key is wrong
	codeLimit           fault.Code = "limit"             // the limit is out of range
	codeListSize        fault.Code = "list_size"         // the list is too large for one answer
	codeMachines        fault.Code = "machines"          // machines would be lost with the member
	codeNonce           fault.Code = "nonce"             // the nonce is too short or too long
	codeNoProxy         fault.Code = "no_proxy"          // this souk has no proxy
	codeNoWorker        fault.Code = "no_worker"         // no worker answers
	codeOptions         fault.Code = "options"           // the gateway lacks a part
	codePolicyQuestion  fault.Code = "policy_question"   // the question about a policy is wrong
	codeQuery           fault.Code = "query"             // a parameter of the query is wrong
	codeRandom          fault.Code = "random"            // no random id could be made
	codeRequestNotFound fault.Code = "request_not_found" // the request is not kept here
	codeRoutes          fault.Code = "routes"            // the routes and what serves them differ
	codeSecretNotFound  fault.Code = "secret_not_found"  // the app has no such secret
	codeShowSecrets     fault.Code = "show_secrets"      // the values of secrets are never shown
	codeSince           fault.Code = "since"             // the text is no time
	codeStream          fault.Code = "stream"            // a line of the answer cannot be written
	codeAccounts        fault.Code = "accounts"          // the accounts are asked for in a way that is not understood
	codeTokenApp        fault.Code = "token_app"         // the token is good for another app
	codeUnimplemented   fault.Code = "unimplemented"     // souk does not do this
	codeValue           fault.Code = "value"             // the value is missing
	codeValues          fault.Code = "values"            // no secret is named
	codeVolumeSizeBytes fault.Code = "volume_size_bytes" // the volume is too large
	codeWeights         fault.Code = "weights"           // a weight of the policy is wrong
)
