// Package nodetest serves the API of workers that a test has made, assembled as in souk itself.
package nodetest

import (
	"net"
	"net/http"
	"testing"

	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/store/catalog"
)

// Serve serves the API of a directory's workers on a free port of this host until the test ends, to those who have the token,
// and returns its address.
func Serve(t testing.TB, directory *find.Directory, rows *catalog.Catalog, token string) (addr string) {
	t.Helper()
	broker, claims := known.New(known.Options{Directory: directory, Catalog: rows})
	t.Cleanup(broker.Close)
	g, err := gateway.New(gateway.Options{Directory: directory, Catalog: rows, Broker: broker, Claims: claims,
		Token: token})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, served := g.Server(), make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		_ = s.Close()
		<-served
	})
	return ln.Addr().String()
}
