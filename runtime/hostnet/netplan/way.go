package netplan

// Way is how packets of containers get from one host to another.
type Way string

// The ways.
const (
	NoWay     Way = "none"
	VXLAN     Way = "vxlan"     // in clear, for networks where nobody else is
	WireGuard Way = "wireguard" // encrypted, and from members alone
)

// ParseWay reads one as users write it, and reports whether it is one; "" is none.
func ParseWay(s string) (w Way, ok bool) {
	switch w := Way(s); w {
	case "":
		return NoWay, true
	case NoWay, VXLAN, WireGuard:
		return w, true
	}
	return NoWay, false
}
