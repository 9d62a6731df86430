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
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/silence"
	"github.com/soukhq/souk/proxy/hop"
)

// Far reaches the proxies of other members.
type Far interface {
	// DialProxy connects to the proxy of the member that a worker belongs to. Both ends have shown who they are.
	DialProxy(ctx context.Context, id cluster.WorkerID) (net.Conn, error)
}

// Between members a request is HTTP/1.1 over a connection of its own for as long as it lasts, with the header Souk-To,
// which names the machine and its port. An answer with the header Souk-Correction is the owner's: the machine was not
// asked. With the header Souk-Ask a machine is woken and not asked, and CONNECT makes the connection one to it. Neither
// clients nor machines can send a header that begins with Souk: see ours and dropSouk.
const (
	askWake = "wake"
	askRaw  = "raw" // with CONNECT: what passes is no request, also where the service is one of HTTP
	toLimit = 256   // bytes of Souk-To
)

// farOwners are the owners that other members are.
type farOwners struct {
	p     *Proxy
	reach Far
	conns hop.Conns
	dials dials

	mu      sync.Mutex
	returns map[cluster.WorkerID]time.Time // until when the successor of a member that is leaving is waited for
	lost    map[cluster.WorkerID]time.Time // when members were last found to be silent
}

// lostTime is how long a member is not dialled that has just fallen silent: what else was to go there would wait for it.
const lostTime = time.Second

// isLost reports whether a member has just fallen silent.
func (f *farOwners) isLost(id cluster.WorkerID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, lost := f.lost[id]
	return lost && time.Since(at) < lostTime
}

// noteLost notes of an error whether it is of the silence of a member, and reports that.
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

// fellSilent is the error of a request that was under way at a member when that fell silent. One that may be sent twice
// goes to another machine.
func fellSilent(id cluster.WorkerID, r *hop.Request, err error) error {
	if r.IsRepeatable() {
		return &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, "unreachable",
			"member %s, which has the machine, has fallen silent", id)}
	}
	return fault.Wrap(err, fault.Timeout, "no_answer",
		"member %s fell silent with the request under way; nobody knows whether it was carried out", id)
}

// connect returns a connection to a member: a new one, or one that has become free meanwhile.
func (f *farOwners) connect(ctx context.Context, id cluster.WorkerID, key string) (*hop.Conn, error) {
	return f.dials.connect(ctx, key, func() (*hop.Conn, error) {
		raw, err := f.dial(ctx, id)
		if err != nil {
			return nil, err
		}
		return hop.NewConn(key, raw), nil
	})
}

func (f *farOwners) dial(ctx context.Context, id cluster.WorkerID) (net.Conn, error) {
	if f.reach == nil {
		return nil, &correction{routing.NoAnswer, fault.New(fault.Unavailable, "unreachable",
			"worker %s is of another member, and this process is alone", id)}
	}
	if f.isLost(id) {
		return nil, &correction{routing.NoAnswer, fault.New(fault.Unavailable, "unreachable",
			"member %s has fallen silent", id)}
	}
	ctx, cancel := context.WithTimeout(ctx, max(farTime, time.Until(f.returnsBy(id))))
	defer cancel()
	c, err := f.reach.DialProxy(ctx, id)
	for tries := 0; err != nil && brokenOff(err) && pause(ctx, leavingPause.After(tries)); tries++ {
		c, err = f.reach.DialProxy(ctx, id)
	}
	if err != nil {
		f.noteLost(id, err)
		return nil, &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, "unreachable",
			"member %s cannot be reached from here", id)}
	}
	return c, nil
}

const farTime = 5 * time.Second // for a connection to another member

// carry sends a request to the owner of a machine. A connection that breaks before an answer says nothing of what
// became of the request, so it is not sent elsewhere, unless it was a kept one that was closed at the other end.
func (f *farOwners) carry(
	ctx context.Context,
	w http.ResponseWriter,
	r *hop.Request,
	b *backend,
) (hop.Result, error) {
	r.Header += farTime
	key := "@" + string(b.worker)
	res, err := overKept(&f.conns, key, w, r, func(*hop.Conn) {},
		func() (*hop.Conn, error) { return f.connect(ctx, b.worker, key) })
	if _, said := errors.AsType[*correction](err); !said && err != nil && f.noteLost(b.worker, err) && res.Code == 0 {
		err = fellSilent(b.worker, r, err)
	}
	return res, err
}

// corrected returns the owner's correction that an answer is, or its error; nil: it is the machine's answer. Over
// HTTP/2
// a machine is asked through a tunnel, so all answers are the machine's.
func (x *exchange) corrected(b *backend, resp *http.Response) error {
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

// problem is an error between members.
type problem struct {
	Kind fault.Kind `json:"kind"`
	Code string     `json:"code"`
	Text string     `json:"text"`
	// After is when to come again, nanoseconds; 0: nobody knows.
	After time.Duration `json:"after_ns,omitempty"`
}

func problemOf(resp *http.Response) error {
	var q problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&q); err != nil || q.Text == "" {
		return fault.New(
			fault.Unavailable,
			"unreachable",
			"the member that has the machine does not take the request",
		)
	}
	return &fault.Error{Kind: q.Kind, Code: q.Code, Text: q.Text, RetryAfter: q.After}
}

const maxProblem = 8 << 10 // bytes

// wake has a machine of another member woken.
func (f *farOwners) wake(ctx context.Context, id cluster.WorkerID, t Target) (p Phases, err error) {
	err = f.untilAnswered(ctx, id, func() error { p, err = f.wakeOnce(ctx, id, t); return err })
	return p, err
}

func (f *farOwners) wakeOnce(ctx context.Context, id cluster.WorkerID, t Target) (Phases, error) {
	c := f.conns.Get("@"+string(id), true)
	if c == nil {
		raw, err := f.dial(ctx, id)
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
		return Phases{}, fault.Wrap(
			err,
			fault.Unavailable,
			"unreachable",
			"member %s did not say whether machine %s "+
				"could be woken",
			id,
			t.Machine,
		)
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

// tunnel connects to a port of a machine of another member. raw says that what passes is no request, so nobody waits for
// its end.
func (f *farOwners) tunnel(ctx context.Context, id cluster.WorkerID, t Target, raw bool) (c net.Conn, err error) {
	err = f.untilAnswered(ctx, id, func() error { c, err = f.tunnelOnce(ctx, id, t, raw); return err })
	return c, err
}

func (f *farOwners) tunnelOnce(ctx context.Context, id cluster.WorkerID, t Target, isRaw bool) (net.Conn, error) {
	raw, err := f.dial(ctx, id)
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
		return nil, &correction{routing.NoAnswer, fault.Wrap(err, fault.Unavailable, "unreachable",
			"member %s does not lead to machine %s", id, t.Machine)}
	}
	if resp.StatusCode != http.StatusOK {
		defer c.Close()
		return nil, correctionOf(resp)
	}
	return c.Rest(), nil
}

// String names a target as Souk-To does.
func (t Target) String() string { return t.App + " " + t.Machine + " " + strconv.Itoa(t.Port) }

func targetOf(h http.Header) (t Target, err error) {
	v := h.Get(toHeader)
	parts := strings.Split(v, " ")
	if len(v) > toLimit || len(parts) != 3 {
		return t, fault.New(fault.Invalid, "to", "a request between members names app, machine and port")
	}
	t.App, t.Machine = parts[0], parts[1]
	if t.Port, err = strconv.Atoi(parts[2]); err != nil {
		return t, fault.New(fault.Invalid, "to", "a request between members names app, machine and port")
	}
	return t, nil
}

// Members serves what other members' proxies send here for machines of this process. Its caller has checked who they are.
type Members struct{ p *Proxy }

// Members returns what serves the proxies of other members.
func (p *Proxy) Members() Members { return Members{p} }

// Goodbye returns the answer that nothing more is taken here, head and body.
func (m Members) Goodbye() []byte {
	return []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n" +
		correctHeader + ": " + isLeaving + "\r\n\r\n")
}

// ServeHTTP serves one request.
func (m Members) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := m.p
	if !p.members.enter() {
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", "0")
		w.Header().Set(correctHeader, isLeaving)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer p.members.leave()
	p.serveMember(w, r)
}

func (p *Proxy) serveMember(w http.ResponseWriter, r *http.Request) {
	t, err := targetOf(r.Header)
	if err != nil {
		correct(w, err)
		return
	}
	if r.Header.Get(askHeader) == askWake {
		phases, err := p.owner.wake(r.Context(), t)
		if err != nil {
			correct(w, err)
			return
		}
		raw, _ := json.Marshal(phases) // numbers can be
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw)
		return
	}
	if r.Method == http.MethodConnect {
		p.tunnel(w, r, t)
		return
	}
	b := &backend{Target: t, own: true, conn: connKey(t.Machine, t.Port), idle: idleTime}
	req := &hop.Request{Request: r, Drop: isTo, Header: farIdle, Idle: farIdle, Whose: r.Header.Get(whoseHeader),
		Answer: func(resp *http.Response) error { dropSouk(resp.Header); return nil }}
	res, err := p.carry(r.Context(), w, req, b)
	switch {
	case err == nil:
	case res.Code != 0 || r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	default:
		if _, is := errors.AsType[*correction](err); !is && errors.Is(err, hop.ErrAnswer) {
			err = badAnswer(err, t.Machine)
		}
		correct(w, err)
	}
}

// farIdle is how long an owner waits for a machine that another entry asks: that one's own patience ends first.
const farIdle = time.Hour

func isTo(name string) bool { return name == toHeader || name == whoseHeader }

// correct tells another entry why a machine was not asked, or did not answer.
func correct(w http.ResponseWriter, err error) {
	q := problem{Kind: fault.Unavailable, Code: "bad_answer",
		Text: "the machine broke off, or what it answers is no HTTP"}
	if f, is := errors.AsType[*fault.Error](err); is {
		q = problem{f.Kind, f.Code, f.Text, f.RetryAfter}
	}
	if c, is := errors.AsType[*correction](err); is {
		w.Header().Set(correctHeader, strconv.Itoa(int(c.kind)))
	} else {
		w.Header().Set(failHeader, q.Code)
	}
	raw, _ := json.Marshal(q) // strings can be
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(raw)
}

// failHeader says that the owner asked the machine, and had no answer of it.
const failHeader = "Souk-Failed"

// tunnel makes a connection one to a machine.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request, t Target) {
	m, v, err := p.owner.enter(r.Context(), t)
	if err != nil {
		correct(w, err)
		return
	}
	defer p.owner.leave(v)
	c, err := p.owner.dial(r.Context(), m, t.Port)
	if err != nil {
		correct(w, err)
		return
	}
	defer c.Close()
	p.owner.over(v, func() net.Conn { return c })
	if r.Header.Get(askHeader) == askRaw {
		p.owner.upgraded(v)
	}
	client, ahead, err := http.NewResponseController(w).Hijack()
	if err != nil {
		correct(w, err)
		return
	}
	defer client.Close()
	_ = client.SetDeadline(time.Time{})
	if _, err := client.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		return
	}
	hop.Pipe(hop.Half{Conn: client, Ahead: ahead.Reader}, hop.Half{Conn: c})
}
