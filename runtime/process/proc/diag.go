package proc

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Layout of what passes over a NETLINK_SOCK_DIAG socket: struct nlmsghdr, inet_diag_req_v2 and inet_diag_msg of Linux.
const (
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	diagListening = 1 << 10
	diagHead      = 16
	diagRequest   = diagHead + 56
	diagSource    = 8  // of a socket's address, in an answer
	diagInode     = 68 // of a socket, there
	diagAnswer    = 72
	diagWait      = 1 // seconds: the kernel answers at once
)

// diagnose asks the kernel for the sockets of this network namespace that listen on a TCP port. It looks at no others, so this
// takes a hundredth of what /proc/net/tcp does, of which even the end of the list walks over the table of all connections. not
// told: the kernel does not answer that.
func diagnose(port int) (out []Listener, told bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: diagWait}); err != nil {
		return nil, false
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
		if err := unix.Sendto(fd, diagAsk(family, port), 0, to); err != nil {
			return nil, false
		}
		more := true
		for buf := make([]byte, 1<<15); more; {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				return nil, false
			}
			if out, more, err = diagRead(out, buf[:n]); err != nil {
				return nil, false
			}
		}
	}
	return out, true
}

// diagAsk makes the request for the sockets of a family that listen on a port.
func diagAsk(family byte, port int) []byte {
	b := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], diagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[diagHead], b[diagHead+1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[diagHead+4:], diagListening)
	binary.BigEndian.PutUint16(b[diagHead+8:], uint16(port))
	return b
}

// diagRead adds the sockets of one piece of an answer, and reports whether more of it comes.
func diagRead(out []Listener, b []byte) (_ []Listener, more bool, err error) {
	for len(b) >= diagHead {
		n, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if n < diagHead || n > len(b) {
			return out, false, unix.EBADMSG
		}
		m := b[diagHead:n]
		switch kind {
		case unix.NLMSG_DONE:
			return out, false, nil
		case diagByFamily:
			if len(m) < diagAnswer {
				return out, false, unix.EBADMSG
			}
			at := netip.AddrFrom4([4]byte(m[diagSource:]))
			if m[0] == unix.AF_INET6 {
				at = netip.AddrFrom16([16]byte(m[diagSource:]))
			}
			inode := binary.NativeEndian.Uint32(m[diagInode:])
			out = append(out, Listener{At: at, Link: "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"})
		default: // NLMSG_ERROR: the kernel has no such thing
			return out, false, unix.EOPNOTSUPP
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return out, true, nil
}
