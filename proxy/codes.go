package proxy

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAsleep         fault.Code = "asleep"           // the app's machines are stopped and may not be started
	codeAtItsLimit     fault.Code = "at_its_limit"     // the machine has reached its limit of requests
	codeAutostart      fault.Code = "autostart"        // the machine may not be started for a request
	codeBadAnswer      fault.Code = "bad_answer"       // the machine's answer is no HTTP, or breaks off
	codeClientGone     fault.Code = "client_gone"      // the client went away
	codeHandshake      fault.Code = "handshake"        // the client's TLS handshake failed
	codeHeldDown       fault.Code = "held_down"        // the app's machines keep ending, so they are not started now
	codeHeldRequests   fault.Code = "held_requests"    // too many requests wait for the app
	codeHost           fault.Code = "host"             // the request names no host
	codeNetworkFrom    fault.Code = "network_from"     // the app does not let the other app in
	codeNoMachine      fault.Code = "no_machine"       // the app has no machine
	codeNoSuchInstance fault.Code = "no_such_instance" // the machine that was asked for is not the app's
	codeNotFit         fault.Code = "not_fit"          // the machine has not passed its check
	codeNoTLS          fault.Code = "no_tls"           // the proxy has no certificates
	codeReplayBody     fault.Code = "replay_body"      // the body is too large to be handed on
	codeReplayLoop     fault.Code = "replay_loop"      // the request was handed on too often
	codeService        fault.Code = "service"          // no service has this port
	codeTarget         fault.Code = "target"           // the target of the request is no path
	codeTo             fault.Code = "to"               // the request between members lacks its app, machine or port
	codeUnhealthy      fault.Code = "unhealthy"        // the app's machines fail their checks
	codeWake           fault.Code = "wake"             // the machine is still starting
	codeWakeFailed     fault.Code = "wake_failed"      // no machine of the app could be woken
)
