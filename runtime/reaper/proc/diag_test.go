package proc

import (
	"cmp"
	"net"
	"slices"
	"testing"
)

// TestListenersByNetlinkMatchProcNet: the kernel's answer over netlink is what its table says.
func TestListenersByNetlinkMatchProcNet(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Log(err) // the host has no IPv6
			continue
		}
		t.Cleanup(func() { ln.Close() })
		port := ln.Addr().(*net.TCPAddr).Port
		for range 3 { // connections of that port are no listeners
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
		told, can := listListeners(port)
		if !can {
			t.Skip("the kernel does not answer what listens over netlink")
		}
		want := listenersOn("/proc/net/", port)
		order := func(a, b Listener) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Link, b.Link)) }
		slices.SortFunc(told, order)
		slices.SortFunc(want, order)
		if len(told) != 1 || !slices.Equal(told, want) {
			t.Errorf("%s: %v, and the table says %v", at, told, want)
		}
		if got := ListenersOn(port); !slices.Equal(got, want) {
			t.Errorf("%s: %v", at, got)
		}
	}
	if told, can := listListeners(1); can && len(told) > 0 {
		t.Errorf("on a port that is free: %v", told)
	}
}

// TestTruncatedNetlinkAnswerIsIgnored: what is cut off is no answer.
func TestTruncatedNetlinkAnswerIsIgnored(t *testing.T) {
	for n := range diagAnswer {
		if _, is := listenerOf(make([]byte, n)); is {
			t.Errorf("%d bytes of a socket are taken", n)
		}
	}
}

func BenchmarkListenersOnAPort(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	b.Run("diagnose", func(b *testing.B) {
		for b.Loop() {
			listListeners(port)
		}
	})
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			listenersOn("/proc/net/", port)
		}
	})
}
