package bench

import (
	"context"
	"net"
	"sync"
	"testing"
)

// TestFloodSendsAtTheRequestedRate: what is measured is a flood of the rate that is said, also where each connection is closed at
// once.
func TestFloodSendsAtTheRequestedRate(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for range 30 {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
				break
			}
			c.Close()
		}
		cancel()
		ln.Close()
	})
	f := &flood{kind: floodAPI, conns: 8, rate: 100, ports: []string{ln.Addr().String()}}
	did, err := f.runFlood(ctx)
	all.Wait()
	if err != nil || did.Opened < 30 || float64(did.Opened) > 1+did.Seconds*float64(f.rate) || did.CPU == 0 {
		t.Errorf("%v: %+v", err, did)
	}
}
