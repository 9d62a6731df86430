package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"math"
	"net"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestForgedDeathExpires: an attacker with the gossip key declares a member dead with memberlist's greatest
// incarnation. The others forget the dead in time, so the member returns.
func TestForgedDeathExpires(t *testing.T) {
	a := start(t, Options{Self: "a", Keys: [][]byte{key}})
	b := start(t, Options{Self: "b", Keys: [][]byte{key}}, a)
	c := start(t, Options{Self: "c", Keys: [][]byte{key}}, a)
	all := []*member{a, b, c}
	alive := func(id cluster.WorkerID) bool {
		for _, m := range all {
			if x, _ := m.Member(id); m.o.Self != id && x.State != cluster.MemberAlive {
				return false
			}
		}
		return true
	}
	waittest.Until(t, "all hear each other", func() bool { return alive("a") && alive("b") && alive("c") })
	var msg bytes.Buffer
	msg.WriteByte(5) // memberlist's deadMsg
	dead := struct {
		Incarnation uint32
		Node, From  string
	}{math.MaxUint32, "b", "ghost"}
	if err := codec.NewEncoder(&msg, &codec.MsgpackHandle{}).Encode(&dead); err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce)
	conn, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(gcm.Seal(append([]byte{1}, nonce...), nonce, msg.Bytes(), nil)); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "b is dead to the others", func() bool { return !alive("b") })
	waittest.Until(t, "all hear each other again", func() bool { return alive("a") && alive("b") && alive("c") })
}
