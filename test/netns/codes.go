package netns

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeBootID  fault.Code = "boot_id" // the boot id cannot be changed
	codeNetns   fault.Code = "netns"   // no network namespace can be made
	codeNfqueue fault.Code = "nfqueue" // the kernel gives no queue of packets
	codeNft     fault.Code = "nft"     // the rules of nftables cannot be laid
)
