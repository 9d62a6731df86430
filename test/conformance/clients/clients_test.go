// Package clients wakes machines by clients that users have: gRPC's own, and one of WebSockets. The machines sleep at one
// member and are asked for at the other.
package clients_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

const app = "shop"

// asleep makes a machine that is not started, and that answers at the port of ln to requests for a name.
func asleep(t *testing.T, c *testcluster.Cluster, name string, ln net.Listener, h2 bool) *machine.Machine {
	t.Helper()
	l := &machine.Launch{Name: name, SkipLaunch: true, Config: &machine.Config{Image: "souk/host",
		Init:  machine.Init{Exec: []string{"sleep", "1000000"}},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
		Services: []machine.Service{{InternalPort: ln.Addr().(*net.TCPAddr).Port, Hosts: []string{name},
			Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"},
				HTTPOptions: &machine.HTTPOptions{H2Backend: &h2}}}}}}}
	m, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func cluster(t *testing.T) *testcluster.Cluster {
	c := testcluster.New(t, 2, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	return c
}

// started fails the test where a machine was not woken.
func started(t *testing.T, c *testcluster.Cluster, m *machine.Machine) {
	t.Helper()
	if got, err := c.Client(0).Machine(t.Context(), app, m.ID); err != nil || got.State != machine.Started {
		t.Errorf("it was not woken: %+v, %v", got, err)
	}
}

// elsewhere waits until both members know a machine, and returns where that one takes requests which has it not.
func elsewhere(t *testing.T, c *testcluster.Cluster, m *machine.Machine) (addr string) {
	t.Helper()
	c.Meet()
	c.Until("both know the machine", func() bool {
		for i := range 2 {
			if _, err := c.Client(i).Machine(t.Context(), app, m.ID); err != nil {
				return false
			}
		}
		return true
	})
	if m.Worker == c.Worker(0) {
		return c.HTTP(1)
	}
	return c.HTTP(0)
}

// TestGRPCCallWakesTheMachine: a call over HTTP/2 wakes the machine, a stream stays open, and the machine's own errors arrive as they are. An
// app that is not there is gRPC's "unimplemented", with souk's reason.
func TestGRPCCallWakesTheMachine(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	ln := listen(t)
	s, own := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, own)
	go func() { _ = s.Serve(ln) }() // it ends with the test
	t.Cleanup(s.Stop)
	own.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_SERVING)
	m := asleep(t, c, "rpc", ln, true)
	at := elsewhere(t, c, m)
	dial := func(name string) grpc_health_v1.HealthClient {
		conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithAuthority(name),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return grpc_health_v1.NewHealthClient(conn)
	}
	cl := dial("rpc.localhost")
	resp, err := cl.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "shop"})
	if err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", resp, err)
	}
	started(t, c, m)
	_, err = cl.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "nobody"})
	if got := status.Convert(err); got.Code() != codes.NotFound || got.Message() != "unknown service" {
		t.Errorf("the machine's own error is %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := cl.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
		grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING} {
		if i > 0 {
			own.SetServingStatus("shop", want)
		}
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Errorf("message %d of the stream is %v, %v", i, got, err)
		}
	}
	_, err = dial("nobody.localhost").Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if got := status.Convert(err); got.Code() != codes.Unimplemented || !strings.Contains(got.Message(), "nobody") {
		t.Errorf("of an app that is not there: %v", got)
	}
}

// TestWebSocketWakesTheMachine: the request of a WebSocket wakes the machine, and messages of any size pass both ways.
func TestWebSocketWakesTheMachine(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	ln := listen(t)
	s := &http.Server{Handler: http.HandlerFunc(echo)} //nolint:gosec // of a test
	go func() { _ = s.Serve(ln) }()                    // it ends with the test
	t.Cleanup(func() { s.Close() })
	m := asleep(t, c, "ws", ln, false)
	at := elsewhere(t, c, m)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+at+"/echo", &websocket.DialOptions{Host: "ws.localhost",
		Subprotocols: []string{"souk"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	started(t, c, m)
	if conn.Subprotocol() != "souk" {
		t.Errorf("the protocol is %q", conn.Subprotocol())
	}
	for _, size := range []int{0, 5, 1 << 10, 500 << 10} {
		text := strings.Repeat("x", size)
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if kind, got, err := conn.Read(ctx); err != nil || kind != websocket.MessageText || string(got) != text {
			t.Fatalf("of %d bytes %d came back: %v", size, len(got), err)
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Errorf("it was not closed as the protocol has it: %v", err)
	}
}

// TestH2LoadRequestsAreAllAnswered: h2load's first requests wake the machine, over HTTP/2 and HTTP/1.1, and all are answered.
func TestH2LoadRequestsAreAllAnswered(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "h2load")
	for name, protocol := range map[string]string{"h2": "h2c", "h1": "http/1.1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t)
			ln := listen(t)
			fine := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }
			s := &http.Server{Handler: http.HandlerFunc(fine)} //nolint:gosec // of a test
			go func() { _ = s.Serve(ln) }()                    // it ends with the test
			t.Cleanup(func() { s.Close() })
			m := asleep(t, c, name, ln, false)
			at := elsewhere(t, c, m)
			ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, "h2load", "-n", "2000", "-c", "16", "-p", protocol,
				"--connect-to", at, "http://"+name+".localhost/").CombinedOutput()
			want := "2000 succeeded, 0 failed, 0 errored, 0 timeout"
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v\n%s", err, out)
			}
			started(t, c, m)
		})
	}
}

// echo sends back what comes.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"souk"}})
	if err != nil {
		fmt.Println("accept:", err)
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	for {
		kind, b, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if err := conn.Write(r.Context(), kind, b); err != nil {
			return
		}
	}
}
