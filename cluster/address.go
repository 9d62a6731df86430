package cluster

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"net/netip"
)

// DefaultNetwork is the name of the network that all clusters have.
const DefaultNetwork = "souk"

// Network returns the private IPv6 addresses (RFC 4193) of a cluster: a /48 that its name gives.
func Network(name string) netip.Prefix {
	sum := sha256.Sum256([]byte("souk network\x00" + name))
	a := [16]byte{0: 0xfd}
	copy(a[1:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 48)
}

// appRounds makes it dear to look for an app name that falls upon another's addresses: about 1 ms each.
const appRounds = 4096

// AppNetwork returns the addresses of an app's machines: a /96 of the cluster's /48. Who may talk to whom is decided by
// it, so that no two apps should have the same: 48 bits, which cost appRounds hashes to try.
func AppNetwork(of netip.Prefix, app string) netip.Prefix {
	salt := of.Masked().Addr().As16()
	sum, err := pbkdf2.Key(sha256.New, app, salt[:], appRounds, 6)
	if err != nil { // only where FIPS 140 rules are enforced, which want a longer key; then a plain hash has to do
		plain := sha256.Sum256(append(salt[:], app...))
		sum = plain[:]
	}
	a := salt
	copy(a[6:12], sum)
	return netip.PrefixFrom(netip.AddrFrom16(a), 96)
}

// MachineAddress returns the address of a machine of an app: the same on each worker.
func MachineAddress(app netip.Prefix, machine string) netip.Addr {
	sum := sha256.Sum256([]byte("souk machine\x00" + machine))
	a := app.Masked().Addr().As16()
	copy(a[12:], sum[:4])
	return netip.AddrFrom16(a)
}
