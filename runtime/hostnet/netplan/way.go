package netplan

// Way is how containers' packets travel between hosts.
type Way string

// The ways.
const (
	NoWay     Way = "none"
	VXLAN     Way = "vxlan"     // unencrypted, for networks without strangers
	WireGuard Way = "wireguard" // encrypted, and only between members
)

// ParseWay parses a user's setting, and reports whether it is valid; "" means none.
func ParseWay(s string) (w Way, ok bool) {
	switch w := Way(s); w {
	case "":
		return NoWay, true
	case NoWay, VXLAN, WireGuard:
		return w, true
	}
	return NoWay, false
}
