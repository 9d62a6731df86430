// Package proxyproto speaks the PROXY protocol, versions 1 and 2 (haproxy.org, proxy-protocol.txt): a header in which a
// proxy names a connection's client. Header writes it for machines, Listen reads it from proxies in front of souk.
package proxyproto

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
)

// codeProxyProtocol says that a trusted proxy sent no header of the PROXY protocol.
const codeProxyProtocol fault.Code = "proxy_protocol"

// Bounds and words of both versions.
const (
	signature = "\r\n\r\n\x00\r\nQUIT\n" // of version 2, 12 bytes
	first     = "PROXY "                 // of version 1
	maxLine   = 107                      // bytes of version 1, with its end
	maxRest   = 4096                     // bytes of version 2 behind its first 16
)

// Commands, families and other constants of version 2.
const (
	local, proxied         = 0x20, 0x21
	tcp4, tcp6, unspec     = 0x11, 0x21, 0x00
	unixStream             = 0x31
	addrs4, addrs6, addrsU = 12, 36, 216 // bytes of the addresses
	typeCRC                = 0x03
)

// Header returns the header that tells a machine a connection's client and door. Addresses other than TCP's are sent as
// unknown.
func Header(version int, from, to net.Addr) []byte {
	src, dst, known := addrsOf(from, to)
	if version == 1 {
		if !known {
			return []byte("PROXY UNKNOWN\r\n")
		}
		family := "TCP6"
		if src.Addr().Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(nil, "PROXY %s %s %s %d %d\r\n", family, src.Addr(), dst.Addr(), src.Port(), dst.Port())
	}
	if !known {
		return append([]byte(signature), local, unspec, 0, 0)
	}
	family := byte(tcp6)
	if src.Addr().Is4() {
		family = tcp4
	}
	body := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
	body = binary.BigEndian.AppendUint16(body, src.Port())
	body = binary.BigEndian.AppendUint16(body, dst.Port())
	return append(binary.BigEndian.AppendUint16(append([]byte(signature), proxied, family), uint16(len(body))), body...)
}

// addrsOf returns both addresses in the same family.
func addrsOf(from, to net.Addr) (src, dst netip.AddrPort, known bool) {
	src, err := netip.ParseAddrPort(from.String())
	dst, err2 := netip.ParseAddrPort(to.String())
	if err != nil || err2 != nil {
		return src, dst, false
	}
	a, b := src.Addr().Unmap().WithZone(""), dst.Addr().Unmap().WithZone("")
	if a.Is4() != b.Is4() {
		a, b = netip.AddrFrom16(a.As16()), netip.AddrFrom16(b.As16())
	}
	return netip.AddrPortFrom(a, src.Port()), netip.AddrPortFrom(b, dst.Port()), true
}

// Addrs are the addresses in a header. Known says that it names a client; otherwise the connection is the proxy's own.
type Addrs struct {
	From, To netip.AddrPort
	Known    bool
}

// Read reads a header and no byte more. A malformed one is Invalid.
func Read(r io.Reader) (Addrs, error) {
	head := make([]byte, len(signature), maxLine)
	if _, err := io.ReadFull(r, head); err != nil {
		return Addrs{}, refuseHeader("it ended too early")
	}
	if string(head) == signature {
		return read2(r)
	}
	if !strings.HasPrefix(string(head), first) {
		return Addrs{}, refuseHeader("there was none")
	}
	for head[len(head)-1] != '\n' {
		if len(head) == maxLine {
			return Addrs{}, refuseHeader("its line is too long")
		}
		head = append(head, 0)
		if _, err := io.ReadFull(r, head[len(head)-1:]); err != nil {
			return Addrs{}, refuseHeader("it ended too early")
		}
	}
	line, whole := strings.CutSuffix(string(head), "\r\n")
	if !whole {
		return Addrs{}, refuseHeader("its line has another end")
	}
	return parse1(line)
}

func refuseHeader(why string) error {
	return fault.New(fault.Invalid, codeProxyProtocol, "a trusted proxy sent no header of the PROXY protocol: %s", why)
}

// parse1 reads the line of version 1.
func parse1(line string) (a Addrs, err error) {
	f := strings.Split(line, " ")
	if f[1] == "UNKNOWN" {
		return a, nil // the rest must be ignored
	}
	if len(f) != 6 || f[1] != "TCP4" && f[1] != "TCP6" {
		return a, refuseHeader("its line does not say from where and to where")
	}
	var addr [2]netip.Addr
	var port [2]uint16
	for i := range addr {
		addr[i], err = netip.ParseAddr(f[2+i])
		if err != nil || addr[i].Is4() != (f[1] == "TCP4") || addr[i].Zone() != "" {
			return a, refuseHeader("its line has a wrong address")
		}
		n, err := strconv.ParseUint(f[4+i], 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != f[4+i] {
			return a, refuseHeader("its line has a wrong port")
		}
		port[i] = uint16(n)
	}
	return Addrs{netip.AddrPortFrom(addr[0], port[0]), netip.AddrPortFrom(addr[1], port[1]), true}, nil
}

// read2 reads a header of version 2 behind its signature.
func read2(r io.Reader) (a Addrs, err error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return a, refuseHeader("it ended too early")
	}
	n := int(binary.BigEndian.Uint16(head[2:]))
	if n > maxRest {
		return a, refuseHeader("it is too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return a, refuseHeader("it ended too early")
	}
	if head[0] == local {
		return a, nil // the rest must be ignored
	}
	if head[0] != proxied {
		return a, refuseHeader("its version or command is not known")
	}
	var size int
	switch head[1] {
	case unspec:
	case tcp4:
		size = addrs4
	case tcp6:
		size = addrs6
	case unixStream:
		size = addrsU
	default:
		return a, refuseHeader("its family or transport is not known")
	}
	if n < size {
		return a, refuseHeader("its addresses are cut off")
	}
	if head[1] == tcp4 || head[1] == tcp6 {
		a = addrs2(body[:size])
	}
	if head[1] == unspec {
		return a, nil // the rest need not be read
	}
	if err := checkExtras(append([]byte(signature), head...), body, size); err != nil {
		return Addrs{}, err
	}
	return a, nil
}

// addrs2 reads the addresses and ports of one family.
func addrs2(b []byte) Addrs {
	n := (len(b) - 4) / 2
	from, _ := netip.AddrFromSlice(b[:n]) // of 4 or 16 bytes
	to, _ := netip.AddrFromSlice(b[n : 2*n])
	return Addrs{netip.AddrPortFrom(from, binary.BigEndian.Uint16(b[2*n:])),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2*n+2:])), true}
}

// checkExtras checks what follows the addresses: each has a type and a length, and a checksum, if any, matches.
func checkExtras(head, body []byte, size int) error {
	for at := size; at < len(body); {
		if len(body)-at < 3 {
			return refuseHeader("it has an extra that is cut off")
		}
		n := int(binary.BigEndian.Uint16(body[at+1:]))
		value := at + 3
		if len(body)-value < n {
			return refuseHeader("it has an extra that is cut off")
		}
		if body[at] == typeCRC {
			if n != crc32.Size {
				return refuseHeader("its checksum is cut off")
			}
			want := binary.BigEndian.Uint32(body[value:])
			clear(body[value : value+n])
			if crc32.Checksum(append(head, body...), crc32.MakeTable(crc32.Castagnoli)) != want {
				return refuseHeader("its checksum is wrong")
			}
		}
		at = value + n
	}
	return nil
}
