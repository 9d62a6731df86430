package proxy

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/proxy/hop"
)

// Members serves what other members' proxies send here for machines of this process. Its caller has checked who they
// are.
type Members struct{ p *Proxy }

// Members returns the handler for other members' proxies.
func (p *Proxy) Members() Members { return Members{p} }

// Goodbye returns the whole answer of a leaving member: a correction, head and body.
func (m Members) Goodbye() []byte {
	return []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n" +
		correctHeader + ": " + isLeaving + "\r\n\r\n")
}

// ServeHTTP serves one request.
func (m Members) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := m.p
	if !p.members.Enter() {
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", "0")
		w.Header().Set(correctHeader, isLeaving)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer p.members.Leave()
	p.serveMember(w, r)
}

func (p *Proxy) serveMember(w http.ResponseWriter, r *http.Request) {
	t, err := targetOf(r.Header)
	if err != nil {
		answerCorrection(w, err)
		return
	}
	if r.Header.Get(askHeader) == askWake {
		phases, err := p.owner.wakeMachine(r.Context(), t)
		if err != nil {
			answerCorrection(w, err)
			return
		}
		raw, _ := json.Marshal(phases) // numbers always encode
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw)
		return
	}
	if r.Method == http.MethodConnect {
		p.serveTunnel(w, r, t)
		return
	}
	b := &backend{Target: t, own: true, conn: connKey(t.Machine, t.Port), idle: idleTime}
	req := &hop.Request{Request: r, Drop: isTo, Header: farIdle, Idle: farIdle, Whose: r.Header.Get(whoseHeader),
		Answer: func(resp *http.Response) error { dropSouk(resp.Header); return nil }}
	res, err := p.owner.carryRequest(r.Context(), w, req, b)
	switch {
	case err == nil:
	case res.Code != 0 || r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	default:
		if _, is := errors.AsType[*correction](err); !is && errors.Is(err, hop.ErrAnswer) {
			err = badAnswer(err, t.Machine)
		}
		answerCorrection(w, err)
	}
}

// farIdle is how long an owner waits for a machine on behalf of another entry, whose own patience ends first.
const farIdle = time.Hour

func isTo(name string) bool { return name == toHeader || name == whoseHeader }

// answerCorrection tells another entry why a machine was not asked, or did not answer.
func answerCorrection(w http.ResponseWriter, err error) {
	q := problem{Kind: fault.Unavailable, Code: codeBadAnswer,
		Text: "the machine ended the connection, or its answer is not HTTP"}
	if f, is := errors.AsType[*fault.Error](err); is {
		q = problem{f.Kind, f.Code, f.Text, f.RetryAfter}
	}
	if c, is := errors.AsType[*correction](err); is {
		w.Header().Set(correctHeader, strconv.Itoa(int(c.kind)))
	} else {
		w.Header().Set(failHeader, string(q.Code))
	}
	raw, _ := json.Marshal(q) // strings always encode
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(raw)
}

// failHeader says that the owner asked the machine, and got no answer.
const failHeader = "Souk-Failed"

// serveTunnel connects the other member's connection to a machine.
func (p *Proxy) serveTunnel(w http.ResponseWriter, r *http.Request, t Target) {
	raw := r.Header.Get(askHeader) == askRaw
	err := p.owner.visitMachine(r.Context(), t, raw, func(c net.Conn) {
		client, ahead, err := http.NewResponseController(w).Hijack()
		if err != nil {
			answerCorrection(w, err)
			return
		}
		defer client.Close()
		_ = client.SetDeadline(time.Time{})
		if _, err := client.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
			return
		}
		hop.Pipe(hop.Half{Conn: client, Ahead: ahead.Reader}, hop.Half{Conn: c})
	})
	if err != nil {
		answerCorrection(w, err)
	}
}

// problem is an error between members.
type problem struct {
	Kind fault.Kind `json:"kind"`
	Code fault.Code `json:"code"`
	Text string     `json:"text"`
	// After is when to try again, nanoseconds; 0: unknown.
	After time.Duration `json:"after_ns,omitempty"`
}

// String formats a target for Souk-To.
func (t Target) String() string { return t.App + " " + t.Machine + " " + strconv.Itoa(t.Port) }

func targetOf(h http.Header) (t Target, err error) {
	v := h.Get(toHeader)
	parts := strings.Split(v, " ")
	if len(v) > toLimit || len(parts) != 3 {
		return t, fault.New(fault.Invalid, codeTo, "a request between members names app, machine and port")
	}
	t.App, t.Machine = parts[0], parts[1]
	if t.Port, err = strconv.Atoi(parts[2]); err != nil {
		return t, fault.New(fault.Invalid, codeTo, "a request between members names app, machine and port")
	}
	return t, nil
}
