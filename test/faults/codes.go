package faults

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAgent   fault.Code = "agent"   // the agent under test does not serve
	codeClients fault.Code = "clients" // the clients under test do not end
	codeCluster fault.Code = "cluster" // the members under test do not know each other
	codeDoctor  fault.Code = "doctor"  // the doctor under test says nothing
	codeFault   fault.Code = "fault"   // there is no such run of faults
	codeFiles   fault.Code = "files"   // the agent under test has no files
	codeHosts   fault.Code = "hosts"   // there are too few hosts
	codePids    fault.Code = "pids"    // the processes under test cannot be counted
	codeReadyz  fault.Code = "readyz"  // the agent under test is not as ready as expected
	codeRun     fault.Code = "run"     // the run does not end
	codeSouk    fault.Code = "souk"    // the command under test failed
	codeWitness fault.Code = "witness" // what the witnesses wrote cannot be read
)
