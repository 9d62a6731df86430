package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// ports opens any port that is asked for at one of the host's choice.
type ports struct {
	mu     sync.Mutex
	open   map[int]net.Listener
	opened int
	fails  int // so many of the next tries
	broken chan error
}

func (p *ports) listen(port int) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails > 0 {
		p.fails--
		return nil, syscall.EADDRINUSE
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.open[port] = ln
	p.opened++
	if p.broken != nil {
		return breaking{ln, p.broken}, nil
	}
	return ln, nil
}

// breaking is a listener that fails at once when it is told to.
type breaking struct {
	net.Listener
	broken chan error
}

func (b breaking) Accept() (net.Conn, error) {
	type got struct {
		c   net.Conn
		err error
	}
	next := make(chan got, 1)
	go func() { c, err := b.Listener.Accept(); next <- got{c, err} }()
	select {
	case x := <-next:
		return x.c, x.err
	case err := <-b.broken:
		return nil, err
	}
}

func (p *ports) count() int { p.mu.Lock(); defer p.mu.Unlock(); return p.opened }

func (p *ports) at(port int) net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[port]
}

// TestServicePortsOpenCloseAndWake: ports open and close with their services; a connection wakes the machine, which
// learns the client's address.
func TestServicePortsOpenCloseAndWake(t *testing.T) {
	p := &ports{open: map[int]net.Listener{}}
	r := newRig(t, func(o *proxy.Options) { o.Listen = p.listen })
	for i, version := range []string{"", "v1", "v2"} {
		port := 7000 + i
		id := fmt.Sprint("m", i)
		handlers := []string{}
		var options *machine.ProxyProtoOption
		if version != "" {
			handlers, options = []string{"proxy_proto"}, &machine.ProxyProtoOption{Version: version}
		}
		r.host.add(fmt.Sprint("app", i), id, machine.Stopped, machine.Service{Protocol: "tcp",
			Ports: []machine.Port{{Port: &port, Handlers: handlers, ProxyProtoOptions: options}}},
			func(c net.Conn) { // what it hears, when that has ended
				all, _ := io.ReadAll(c)
				_, _ = c.Write(all)
			})
		waittest.Until(t, "the port is open", func() bool { return p.at(port) != nil })
		c, err := net.Dial("tcp", p.at(port).Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(waittest.Patience))
		_, _ = io.WriteString(c, "hello")
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
		}
		c.Close()
		from, to := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
		want := "hello"
		switch version {
		case "v1":
			want = fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\nhello", from.Port, to.Port)
		case "v2":
			want = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01" + string(
				[]byte{byte(from.Port >> 8),
					byte(from.Port), byte(to.Port >> 8), byte(to.Port)},
			) + "hello"
		}
		if string(got) != want {
			t.Errorf("%s: the machine heard %q, not %q", version, got, want)
		}
		waittest.Until(t, "it is in the log", func() bool {
			return strings.Contains(r.log.String(), `"machine":"`+id+`"`)
		})
		r.host.own.Gone(id)
		waittest.Until(t, "the port is closed", func() bool {
			c, err := net.Dial("tcp", p.at(port).Addr().String())
			if err == nil {
				c.Close()
			}
			return err != nil && !errors.Is(err, net.ErrClosed)
		})
	}
	if starts, _ := r.host.count(); starts != 3 {
		t.Errorf("%d starts", starts)
	}
}
