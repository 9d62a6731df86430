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

// appRounds makes it expensive to search for an app name whose addresses collide with another's: about 1 ms per try.
const appRounds = 4096

// AppNetwork returns the addresses of an app's machines: a /96 of the cluster's /48. Firewall rules use it, so no two
// apps should share one: it has 48 bits, and each try costs appRounds hashes.
func AppNetwork(of netip.Prefix, app string) netip.Prefix {
	salt := of.Masked().Addr().As16()
	sum, err := pbkdf2.Key(sha256.New, app, salt[:], appRounds, 6)
	if err != nil { // only under FIPS 140, which wants a longer key; then use a plain hash
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
