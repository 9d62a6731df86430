package client

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAddress    fault.Code = "address"     // the text is no address of a souk
	codeAnswer     fault.Code = "answer"      // the server's answer is not the JSON that is expected
	codeAnswerSize fault.Code = "answer_size" // the server's answer is too large
	CodeBrokenOff  fault.Code = "broken_off"  // the connection ended before the answer did
	codeCanceled   fault.Code = "canceled"    // the caller gave the request up
	codeDoor       fault.Code = "door"        // the server does not answer the liveness check
	codeRequest    fault.Code = "request"     // the request cannot be written as JSON
	codeSocket     fault.Code = "socket"      // the socket belongs to another user's souk
	codeUTF8       fault.Code = "utf8"        // a text has bytes that are no UTF-8
)
