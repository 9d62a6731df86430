package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/silence"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/proxy/hop"
)

// Far reaches the proxies of other members.
type Far interface {
	// DialProxy connects to the proxy of the member that a worker belongs to. Both ends have shown who they are.
	DialProxy(ctx context.Context, id cluster.WorkerID) (net.Conn, error)
}

// Between members a request is HTTP/1.1 over a connection of its own with the header Souk-To, which names the machine
// and its port. An answer with the header Souk-Correction is the owner's: the machine was not asked. With the header
// Souk-Ask the owner only wakes the machine, and CONNECT makes the connection a tunnel to it. Neither clients nor
// machines can send a header that begins with Souk: see ours and dropSouk.
const (
	askWake = "wake"
	askRaw  = "raw" // with CONNECT: the tunnel is no request, even if the service speaks HTTP
	toLimit = 256   // bytes of Souk-To at most
)

// farOwners reaches the owners at other members.
type farOwners struct {
	p     *Proxy
	reach Far
	conns hop.Conns
	dials dials
	h2    h2Clients

	mu      sync.Mutex
	returns map[cluster.WorkerID]time.Time // how long to wait for a leaving member's successor
	lost    map[cluster.WorkerID]time.Time // when members were last found to be silent
}

// lostTime is how long a member that has just fallen silent is not dialled, so that other requests do not wait for it.
const lostTime = time.Second

// isLost reports whether a member has just fallen silent.
func (f *farOwners) isLost(id cluster.WorkerID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, lost := f.lost[id]
	return lost && time.Since(at) < lostTime
}

// noteLost reports whether an error says that a member is silent, and notes it if so.
func (f *farOwners) noteLost(id cluster.WorkerID, err error) bool {
	var slow net.Error
	dial, _ := errors.AsType[*net.OpError](err)
	if !errors.Is(err, silence.Err) && (dial == nil || dial.Op != "dial" || !errors.As(err, &slow) || !slow.Timeout()) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost == nil {
		f.lost = map[cluster.WorkerID]time.Time{}
	}
	f.lost[id] = time.Now()
	return true
}

// fellSilent is the error of a request whose member fell silent before it answered. A request that may be sent twice
// goes to another machine.
func fellSilent(id cluster.WorkerID, r *hop.Request, err error) error {
	if r.IsRepeatable() {
		return &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"member %s, which has the machine, has fallen silent", id)}
	}
	return fault.Wrap(err, fault.Timeout, fault.CodeNoAnswer,
		"member %s fell silent with the request under way; nobody knows whether it was carried out", id)
}

// farEnd is a member that a request is sent to.
type farEnd struct {
	*farOwners
	id cluster.WorkerID
}

func (e farEnd) dialMachine(ctx context.Context) (net.Conn, error) {
	return e.farOwners.dialMember(ctx, e.id)
}
func (farEnd) goesOver(net.Conn) {}

func (f *farOwners) dialMember(ctx context.Context, id cluster.WorkerID) (net.Conn, error) {
	if f.reach == nil {
		return nil, &correction{routing.NoAnswer, fault.New(fault.Unavailable, fault.CodeUnreachable,
			"worker %s belongs to another member, and this souk is not in a cluster", id)}
	}
	if f.isLost(id) {
		return nil, &correction{routing.NoAnswer, fault.New(fault.Unavailable, fault.CodeUnreachable,
			"member %s has fallen silent", id)}
	}
	ctx, cancel := context.WithTimeout(ctx, max(farTime, time.Until(f.returnsBy(id))))
	defer cancel()
	c, err := f.reach.DialProxy(ctx, id)
	for tries := 0; err != nil && brokenOff(err) && wait.For(ctx, leavingPause.After(tries)) == nil; tries++ {
		c, err = f.reach.DialProxy(ctx, id)
	}
	if err != nil {
		f.noteLost(id, err)
		return nil, &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"member %s cannot be reached from here", id)}
	}
	return c, nil
}

const farTime = 5 * time.Second // for a connection to another member

// carryRequest sends a request to the owner of a machine. If a connection breaks before an answer, the machine may have
// seen the request, so it is not sent again, unless it was a kept connection that the other end had closed.
func (f *farOwners) carryRequest(ctx context.Context, w http.ResponseWriter, r *hop.Request, b *backend) (hop.Result,
	error) {
	if b.h2 {
		return hop.RoundTrip(w, r, f.h2.clientFor(b, func(ctx context.Context) (net.Conn, error) {
			return f.openTunnel(ctx, b.worker, b.Target, false)
		}))
	}
	r.Header += farTime
	res, err := f.dials.sendRequest(ctx, w, r, "@"+string(b.worker), farEnd{f, b.worker})
	if _, said := errors.AsType[*correction](err); !said && err != nil && f.noteLost(b.worker, err) && res.Code == 0 {
		err = fellSilent(b.worker, r, err)
	}
	return res, err
}

// correctionOf returns the correction or error of the owner that an answer carries; nil: it is the machine's answer.
// Over HTTP/2 requests go through a tunnel, so all answers are the machine's.
func (x *exchange) correctionOf(b *backend, resp *http.Response) error {
	if b.own || b.h2 || len(resp.Header[correctHeader])+len(resp.Header[failHeader]) == 0 {
		return nil
	}
	return correctionOf(resp)
}

func correctionOf(resp *http.Response) error {
	v := resp.Header.Get(correctHeader)
	switch v {
	case "":
		return problemOf(resp)
	case isLeaving:
		return errLeaving
	}
	kind, err := strconv.Atoi(v)
	if err != nil || kind < 0 || kind > int(routing.NotHere) {
		kind = int(routing.NoAnswer)
	}
	return &correction{routing.Correction(kind), problemOf(resp)}
}

func problemOf(resp *http.Response) error {
	var q problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&q); err != nil || q.Text == "" {
		return fault.New(fault.Unavailable, fault.CodeUnreachable,
			"the member that has the machine refused the request without a reason")
	}
	return &fault.Error{Kind: q.Kind, Code: q.Code, Text: q.Text, RetryAfter: q.After}
}

const maxProblem = 8 << 10 // bytes

// wakeMachine asks another member to wake its machine.
func (f *farOwners) wakeMachine(ctx context.Context, id cluster.WorkerID, t Target) (p Phases, err error) {
	err = f.untilAnswered(ctx, id, func() error { p, err = f.wakeOnce(ctx, id, t); return err })
	return p, err
}

func (f *farOwners) wakeOnce(ctx context.Context, id cluster.WorkerID, t Target) (Phases, error) {
	c := f.conns.Get("@"+string(id), true)
	if c == nil {
		raw, err := f.dialMember(ctx, id)
		if err != nil {
			return Phases{}, err
		}
		c = hop.NewConn("@"+string(id), raw)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://souk/", nil)
	if err != nil {
		c.Close()
		return Phases{}, err
	}
	resp, err := hop.Ask(r, c, hop.Field{Name: toHeader, Value: t.String()},
		hop.Field{Name: askHeader, Value: askWake})
	if err != nil {
		c.Close()
		return Phases{}, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"member %s did not say whether machine %s could be woken", id, t.Machine)
	}
	defer func() {
		if hop.Drained(resp) {
			f.conns.Put(c)
		} else {
			c.Close()
		}
	}()
	if resp.StatusCode != http.StatusOK {
		if resp.Header.Get(correctHeader) == isLeaving {
			return Phases{}, errLeaving
		}
		return Phases{}, problemOf(resp)
	}
	var out Phases
	err = json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&out)
	return out, err
}

// openTunnel connects to a port of a machine of another member. raw says that the tunnel carries no request, so a drain
// does not wait for its end.
func (f *farOwners) openTunnel(ctx context.Context, id cluster.WorkerID, t Target, raw bool) (c net.Conn, err error) {
	err = f.untilAnswered(ctx, id, func() error { c, err = f.tunnelOnce(ctx, id, t, raw); return err })
	return c, err
}

func (f *farOwners) tunnelOnce(ctx context.Context, id cluster.WorkerID, t Target, isRaw bool) (net.Conn, error) {
	raw, err := f.dialMember(ctx, id)
	if err != nil {
		return nil, err
	}
	c := hop.NewConn("", raw)
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Path: "/"}, Host: "souk", Header: http.Header{}}
	fields := []hop.Field{{Name: toHeader, Value: t.String()}}
	if isRaw {
		fields = append(fields, hop.Field{Name: askHeader, Value: askRaw})
	}
	resp, err := hop.Ask(r.WithContext(ctx), c, fields...)
	if err != nil {
		c.Close()
		return nil, &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"member %s did not forward the request to machine %s", id, t.Machine)}
	}
	if resp.StatusCode != http.StatusOK {
		defer c.Close()
		return nil, correctionOf(resp)
	}
	return c.Rest(), nil
}
