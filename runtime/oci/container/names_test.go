package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestResolverOf: of the host's own resolver that counts which holds for its containers, too.
func TestResolverOf(t *testing.T) {
	servers, search, options := resolverOf([]byte("# made\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n" +
		"nameserver fe80::1%eth0\nnameserver 2001:db8::53\ndomain old.example\nsearch corp.example lab.example .\n" +
		"options edns0 ndots:2 trust-ad\nnameserver\n"))
	if d := cmp.Diff([][]string{{"10.0.0.2", "2001:db8::53"}, {"corp.example", "lab.example"}, {"ndots:2"}},
		[][]string{servers, search, options}); d != "" {
		t.Error(d)
	}
}
