package faults_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/faults"
)

// silentBound is how long what is under way at a member takes until it ends, once nothing comes from that member's host.
const silentBound = 5 * time.Second

// TestSilentMemberEndsItsRequests: packets to and from a host are dropped while requests are under way at its machine. Those that
// may be sent twice are answered by the other machine, the others with a reason; a connection and a log that go through
// another member end. All that within silentBound, beside the time that the other machine takes.
func TestSilentMemberEndsItsRequests(t *testing.T) {
	apart(t, func() {
		hosts, err := allHosts()
		if err != nil {
			t.Fatal(err)
		}
		ms := members(t, hosts[:3])
		if _, err := ms[0].Client().CreateApp(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		exe, machines := program(t), map[int]*machine.Machine{}
		for i := 1; i <= 2; i++ {
			l := shopOf(ms[i], fmt.Sprint("web-", i), false)
			l.Config.Init.Exec, l.Config.Env = []string{exe}, map[string]string{envServe: fmt.Sprint(shopPort)}
			x, err := ms[0].Client().Launch(t.Context(), shop, l, client.LaunchOptions{})
			if err != nil || x.Worker != ms[i].Worker() {
				t.Fatalf("%+v, %v", x, err)
			}
			machines[i] = x
			waittest.Until(t, "the machine answers", func() bool {
				return askedOf(t, ms[0], x.ID, "GET", "/") == "200 fine"
			})
		}
		ended := make(chan string, 2)
		in, feed := io.Pipe()
		defer feed.Close()
		heard := make(chan struct{}, 1)
		go func() {
			err := ms[0].Client().Forward(t.Context(), shop, machines[1].ID, shopPort, in, told(heard))
			ended <- fmt.Sprint("a connection to a port: ", err)
		}()
		if _, err := io.WriteString(feed, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-heard
		go func() {
			err := ms[0].Client().Logs(t.Context(), shop, machines[1].ID, machine.LogQuery{Follow: true},
				func(machine.LogLine) error { return nil })
			ended <- fmt.Sprint("a log: ", err)
		}()
		const takes, each = 3 * time.Second, 8
		slow := "/?takes=" + takes.String()
		began := make(chan struct{}, 4*each)
		got := map[string]chan string{}
		under := func(name, id, method string) {
			answers := make(chan string, each)
			got[name] = answers
			for range each {
				go func() { began <- struct{}{}; answers <- askedOf(t, ms[0], id, method, slow) }()
			}
		}
		under("any GET", "", "GET")
		under("any POST", "", "POST")
		under("a GET of the silent one's", machines[1].ID, "GET")
		for range cap(began) - each {
			<-began
		}
		waittest.Pass(time.Second) // they are under way: a member tells of its load a moment later, if at all
		if err := hosts.Part(func(i int) bool { return i == 1 }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = hosts.Heal() }()
		cut := time.Now()
		under("a new GET", "", "GET")
		for name, answers := range got {
			seen := map[string]int{}
			for range each {
				select {
				case a := <-answers:
					seen[a]++
				case <-time.After(time.Until(cut.Add(silentBound + takes + time.Second))):
					seen["none"]++
				}
			}
			t.Logf("%s: %v, all after %v", name, seen, time.Since(cut))
			for a := range seen {
				isReason := strings.HasPrefix(a, "503 ") || strings.HasPrefix(a, "504 ")
				if a != "200 fine" && (!isReason || strings.HasSuffix(name, "any GET") || name == "a new GET") {
					t.Errorf("%s: %v", name, seen)
				}
			}
		}
		for range cap(ended) {
			select {
			case what := <-ended:
				t.Log(what)
			case <-time.After(time.Until(cut.Add(silentBound + takes + time.Second))):
				t.Error("a connection to a port, or a log, goes on")
			}
		}
	})
}

// told is a writer that says when something was written.
type told chan struct{}

func (c told) Write(b []byte) (int, error) {
	select {
	case c <- struct{}{}:
	default:
	}
	return len(b), nil
}

// askedOf asks a member for the shop, one machine of it or any (""): the status, and the body or the code of an error.
func askedOf(t *testing.T, m *faults.Member, id, method, path string) string {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://souk"+path, nil)
	if err != nil {
		return err.Error()
	}
	r.Host = shop + ".localhost"
	if id != "" {
		r.Header.Set("Fly-Force-Instance-Id", id)
	}
	resp, err := m.Proxy().Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	if why := resp.Header.Get("Souk-Error"); why != "" {
		return fmt.Sprint(resp.StatusCode, " ", why)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}
