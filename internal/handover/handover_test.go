package handover_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/handover"
)

// TestMain is the program of the tests as well: it listens, says where, and with each line that it reads becomes itself
// again. Each life answers one connection, with its number.
func TestMain(m *testing.M) {
	if life := os.Getenv("LIFE"); life != "" {
		if err := live(life); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func live(life string) error {
	doors, err := handover.Inherit()
	if err != nil {
		return err
	}
	ln, err := doors.Listen("main", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if life == "1" { // the next life does not ask for this one
		other, err := doors.Listen("other", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(other.Addr())
	}
	doors.Settled()
	fmt.Println(ln.Addr())
	if _, err := bufio.NewReaderSize(os.Stdin, 16).ReadSlice('\n'); err != nil { // until the test goes on
		return err
	}
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, "life", life); err != nil {
		return err
	}
	if err := doors.Leave(); err != nil {
		return err
	}
	if err := ln.Close(); err != nil {
		return err
	}
	return doors.Become("/proc/self/exe", os.Args, []string{"LIFE=" + life + "1"})
}

// TestHandoverRefusesNoConnection: who connects while one program ends and the next begins is answered by the next, and an address
// that the next one does not want is free again, also where both asked for any port.
func TestHandoverRefusesNoConnection(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"LIFE=1"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	said := bufio.NewScanner(out)
	next := func() string {
		if !said.Scan() {
			t.Fatal("the program has ended")
		}
		return said.Text()
	}
	unwanted, at := next(), next()
	var conns []net.Conn
	for range 3 { // all at once: two of them wait for lives to come
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for i, c := range conns {
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
		got, err := bufio.NewReader(c).ReadString('\n')
		if want := "life " + strings.Repeat("1", i+1) + "\n"; got != want || err != nil {
			t.Fatalf("connection %d: %q, %v, want %q", i, got, err, want)
		}
		if now := next(); now != at {
			t.Errorf("life %d listens at %s, not %s", i+2, now, at)
		}
	}
	if c, err := net.Dial("tcp", unwanted); err == nil {
		c.Close()
		t.Errorf("%s is still open, and nobody wants it", unwanted)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
}
