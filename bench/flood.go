package bench

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// flood describes what a process without token, key or certificate does to a souk's ports.
type flood struct {
	kind  string
	conns int      // open at once, to each port
	rate  int      // connections opened a second at most, all ports together; of resets: resets
	ports []string // host:port
}

// flooded is what a flood did.
type flooded struct {
	Opened  int64         `json:"opened"` // connections
	Resets  int64         `json:"resets"`
	Seconds float64       `json:"seconds"`
	CPU     time.Duration `json:"cpu_ns"` // of the flood's process
}

func (d *flooded) addCounts(x flooded) {
	d.Opened, d.Resets = d.Opened+x.Opened, d.Resets+x.Resets
	d.Seconds, d.CPU = d.Seconds+x.Seconds, d.CPU+x.CPU
}

// Kinds of floods: what each connection sends.
const (
	floodAPI    = "api"    // GET /livez, and stays
	floodGossip = "gossip" // nothing
	floodWire   = "wire"   // nothing
	floodResets = "resets" // HTTP/2 requests at the port for joins, each reset at once
)

// FloodMain is the hidden command "souk bench-flood KIND CONNECTIONS RATE PORT...", which floods until its stdin ends
// and then reports on stdout. It reports whether the arguments are that command.
func FloodMain(argv []string) (mine bool, err error) {
	if len(argv) < 5 || argv[0] != "bench-flood" {
		return false, nil
	}
	f := &flood{kind: argv[1], ports: argv[4:]}
	if f.conns, err = strconv.Atoi(argv[2]); err != nil {
		return true, err
	}
	if f.rate, err = strconv.Atoi(argv[3]); err != nil || f.rate < 1 {
		return true, fmt.Errorf("a rate is a number above 0, not %q", argv[3])
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
		cancel()
	}()
	out, err := f.runFlood(ctx)
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(out)
}

func (f *flood) runFlood(ctx context.Context) (out flooded, err error) {
	begin := time.Now()
	turns := make(chan struct{}) // a value permits one connection, or one chunk of resets
	var all sync.WaitGroup
	all.Go(func() { f.pacePermits(ctx, turns) })
	var opened, reset atomic.Int64
	for _, port := range f.ports {
		for range f.conns {
			all.Go(func() {
				for range turns {
					opened.Add(1)
					f.floodConnection(ctx, port, turns, &reset)
				}
			})
		}
	}
	all.Wait()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return out, err
	}
	return flooded{Opened: opened.Load(), Resets: reset.Load(), Seconds: time.Since(begin).Seconds(),
		CPU: time.Duration(use.Utime.Nano() + use.Stime.Nano())}, nil
}

// pacePermits sends turns at the rate until ctx ends, and then closes the channel.
func (f *flood) pacePermits(ctx context.Context, turns chan<- struct{}) {
	defer close(turns)
	per := float64(f.rate)
	if f.kind == floodResets {
		per /= resetChunk
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for given := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(per * time.Since(begin).Seconds()); given < due; given++ {
			select {
			case <-ctx.Done():
				return
			case turns <- struct{}{}:
			}
		}
	}
}

// floodConnection keeps one connection open until the other end closes it.
func (f *flood) floodConnection(ctx context.Context, port string, turns <-chan struct{}, reset *atomic.Int64) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", port)
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	switch f.kind {
	case floodResets:
		resetStreams(ctx, conn, turns, reset)
		return
	case floodAPI:
		if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: "+port+"\r\n\r\n"); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, conn)
}

const resetChunk = 64 // requests that are sent and reset in one write

// resetStreams sends HTTP/2 requests and resets each at once, one chunk a turn, until the connection ends.
func resetStreams(ctx context.Context, raw net.Conn, turns <-chan struct{}, reset *atomic.Int64) {
	//nolint:gosec // who attacks does not care whom
	conn := tls.Client(raw, &tls.Config{ServerName: "join.souk", InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		return
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, preface); err != nil {
		return
	}
	heard := make(chan struct{})
	go func() { // read the answers, so that the other end does not block
		defer close(heard)
		_, _ = io.Copy(io.Discard, conn)
		raw.Close()
	}()
	defer func() { raw.Close(); <-heard }()
	const question = "\x83\x87\x84\x41\x04souk" // POST https / at souk
	for id := uint32(1); ; {
		var chunk []byte
		for range resetChunk {
			chunk = append(chunk, 0, 0, byte(len(question)), 1, 4) // HEADERS
			chunk = append(binary.BigEndian.AppendUint32(chunk, id), question...)
			chunk = append(chunk, 0, 0, 4, 3, 0) // RST_STREAM
			chunk = append(binary.BigEndian.AppendUint32(chunk, id), 0, 0, 0, 8)
			id += 2
		}
		if _, err := conn.Write(chunk); err != nil {
			return
		}
		reset.Add(resetChunk)
		select {
		case _, more := <-turns:
			if !more {
				return
			}
		case <-heard:
			return
		}
	}
}
