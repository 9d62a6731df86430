package gossip

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	CodeAlive          fault.Code = "alive"           // the member is alive, so it cannot be forgotten
	codeGossip         fault.Code = "gossip"          // gossip does not start
	codeGossipBind     fault.Code = "gossip_bind"     // gossip cannot listen at its address
	codeGossipDir      fault.Code = "gossip_dir"      // the directory of gossip cannot be used
	codeGossipKey      fault.Code = "gossip_key"      // the key of gossip cannot be used
	codeGossipOptions  fault.Code = "gossip_options"  // the options of gossip are wrong
	codeJoin           fault.Code = "join"            // no member answers at the addresses to join
	codeLeave          fault.Code = "leave"           // the other members may not have received the goodbye
	codeObjectsDamaged fault.Code = "objects_damaged" // the file of the cluster's objects is damaged
	codeRecord         fault.Code = "record"          // the record cannot be encoded
)
