package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/testscript"
)

// scriptDig asks a DNS server until it answers as wanted: dig ADDR NAME TYPE WANT. WANT is what is told, sorted and
// joined with spaces, or the code where nothing is: NOERROR, NXDOMAIN, REFUSED. Over UDP and TCP it must be the same.
func scriptDig(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: dig ADDR NAME TYPE WANT")
	}
	retry(ts, strings.Join(args, " "), func(context.Context) (string, bool) {
		udp, tcp := dig("udp", args), dig("tcp", args)
		return udp + ", by TCP " + tcp, udp == args[3] && tcp == args[3]
	})
}

func dig(network string, args []string) string {
	q := new(dns.Msg)
	q.SetQuestion(args[1], dns.StringToType[args[2]])
	m, _, err := (&dns.Client{Net: network, Timeout: 2 * time.Second}).Exchange(q, args[0])
	if err != nil {
		return err.Error()
	}
	var told []string
	for _, rr := range m.Answer {
		told = append(told, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	if len(told) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	return strings.Join(told, " ")
}

// scriptDigOdd sends what is no question to a DNS server, as large as a message may be, and wants it to close the
// connection or answer with an error: dig-odd ADDR.
func scriptDigOdd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: dig-odd ADDR")
	}
	question := func(name []byte) []byte {
		raw := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0} // id 7, one question
		return append(append(raw, name...), 0, 1, 0, 1)
	}
	label := append([]byte{63}, []byte(strings.Repeat("x", 63))...)
	var long []byte
	for range 1000 { // 64 KB of labels, where a name has 255 bytes
		long = append(long, label...)
	}
	for what, raw := range map[string][]byte{
		"a name of 64 KB":           question(append(long, 0)),
		"a name that never ends":    question(long),
		"a name that is itself":     question([]byte{0xc0, 12}),
		"64 KB of nothing":          make([]byte, 65535),
		"64 KB of ones":             []byte(strings.Repeat("\xff", 65535)),
		"more questions than there": {0, 7, 1, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0},
	} {
		if err := sendOdd(args[0], raw); err != nil {
			ts.Fatalf("%s: %v", what, err)
		}
	}
}

// sendOdd sends raw as one message, by TCP, and by UDP as much as a packet takes.
func sendOdd(addr string, raw []byte) error {
	u, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	_, _ = u.Write(raw[:min(len(raw), 60_000)])
	if err := u.Close(); err != nil {
		return err
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...)); err != nil {
		return nil //nolint:nilerr // closed before all was sent
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // as package net gives it
			return fmt.Errorf("it is neither answered nor closed")
		}
		return nil // closed
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	m := new(dns.Msg)
	if err := m.Unpack(answer); err != nil {
		return err
	}
	if m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0 {
		return fmt.Errorf("it is answered: %v", m)
	}
	return nil
}
