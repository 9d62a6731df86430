package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop"
)

// exchange is one request on its way.
type exchange struct {
	p       *Proxy
	w       http.ResponseWriter
	r       *http.Request
	id      string
	door    *Door
	peer    string // address of its sender
	client  string // address of its client, see clientOf
	key     key
	began   time.Time
	backend *backend // the machine that answered, or was tried last
	held    time.Duration
	woke    *Phases
	first   time.Time // when the head of the answer came
	code    int
	bytes   int64
	replays int
	// what the app that replayed it last says to the next one: Fly-Replay-Src
	replayed string
	body     *replayable // nil: the request has none
	err      error
}

// ServeHTTP serves one request that came in at a door for HTTP.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := d.p
	d.bidFarewell(w, r)
	if isLast(r) {
		w.Header().Set("Connection", "close")
	}
	x := &exchange{p: p, w: w, r: r, door: d, began: time.Now(), id: requestID(r, p, d)}
	x.peer, _, _ = net.SplitHostPort(r.RemoteAddr)
	x.client = p.clientOf(r, x.peer)
	defer p.recordExchange(x)
	if x.err = x.serveRequest(); x.err == nil {
		return
	}
	switch {
	case errors.Is(x.err, errClientGone):
		x.code = 499
		panic(http.ErrAbortHandler)
	case x.code != 0: // a part of the answer was sent
		panic(http.ErrAbortHandler)
	}
	if !x.body.isRead() && r.ProtoMajor == 1 { // the rest of the body must not be read as a request
		w.Header().Set("Connection", "close")
	}
	if isGRPC(r) {
		x.code = failGRPC(w, x.id, x.err)
		return
	}
	x.code = answerError(w, r, x.id, x.err)
}

func requestID(r *http.Request, p *Proxy, d *Door) string {
	if id := r.Header.Get(requestHeader); id != "" && len(id) <= 64 && p.trustsClient(r.RemoteAddr) {
		return id
	}
	return ulid.Make().String()
}

func (x *exchange) serveRequest() error {
	if err := wellFormed(x.r); err != nil {
		return err
	}
	if err := x.refuseMisdirected(); err != nil {
		return err
	}
	k, err := x.p.keyOnce(x.r.Context(), x.door, x.r.Host)
	if err != nil {
		return err
	}
	x.key = k
	if x.r.Body != nil && x.r.Body != http.NoBody && x.r.ContentLength != 0 {
		x.body = &replayable{from: x.r.Body}
	}
	if done := x.toHTTPS(); done {
		return nil
	}
	if x.answersIgnored() {
		return nil
	}
	ask := x.routingAsk()
	for {
		again, err := x.tryMachines(ask)
		if again == nil {
			return err
		}
		if x.replays++; x.replays > maxReplays {
			return fault.New(fault.Unavailable, codeReplayLoop,
				"the request was handed on %d times by fly-replay; the apps hand it to each other", maxReplays)
		}
		if x.key, ask = k, again.ask; again.app != k.app {
			x.key = key{app: again.app}
			kept := x.p.keptOf(again.app)
			if !kept.hasGroupFor(x.key) && !x.p.hasMachines(again.app) { // an unknown name gets no pool
				return refusalOf(x.key, &routing.Out{Reason: routing.NoMachine})
			}
		}
	}
}

// hasMachines reports whether an app has any.
func (p *Proxy) hasMachines(app string) bool {
	for range p.o.Fleet.Snapshot().MachinesOf(app) {
		return true
	}
	return false
}

// routingAsk returns what a request's headers say about the machine that should serve it.
func (x *exchange) routingAsk() routing.Ask {
	return routing.Ask{Source: sourceOf(x.client), Only: x.r.Header.Get("Fly-Force-Instance-Id"),
		Region: regionOf(x.r.Header.Get("Fly-Prefer-Region"))}
}

// tryMachines sends the request to one machine after another until one answers. It returns a replay if the answer was
// Fly-Replay.
func (x *exchange) tryMachines(ask routing.Ask) (*replay, error) {
	ctx, before := x.r.Context(), x.held
	until := x.holdUntil()
	g, err := x.p.poolOf(x.key).acquireMachine(ctx, until, ask)
	for err == nil {
		x.backend, x.held = g.backend, before+g.held
		if g.woke != nil {
			x.woke = g.woke
		}
		var again *replay
		again, err = x.sendTo(ctx, g.backend)
		c, corrected := errors.AsType[*correction](err)
		if corrected && ctx.Err() != nil { // the client left: no fault of the machine
			err, corrected = errClientGone, false
		}
		if !corrected || !x.body.rewindBody() {
			g.giveBack()
			return again, err
		}
		g, err = g.tryAnother(ctx, until, c)
	}
	return nil, err
}

// holdUntil returns until when a request may wait for a machine: as long as the proxy holds one, and no longer than a
// gRPC client's own timeout. It does not bound the time of the machine's answer.
func (x *exchange) holdUntil() time.Time {
	until := time.Now().Add(x.p.o.Hold)
	if own, bounded := grpcTimeout(x.r); bounded && x.began.Add(own).Before(until) {
		return x.began.Add(own)
	}
	return until
}

// sendTo sends the request to one machine. A correction says that the machine has not got it.
func (x *exchange) sendTo(ctx context.Context, b *backend) (*replay, error) {
	var again *replay
	req := &hop.Request{Request: x.r, Set: x.headersFor(b), Drop: x.isDropped, Header: b.idle, Idle: b.idle,
		Whose: x.clientKey()}
	if x.body != nil {
		r := *x.r
		r.Body = x.body
		req.Request = &r
	}
	req.Answer = func(resp *http.Response) error {
		x.first = time.Now()
		if err := x.correctionOf(b, resp); err != nil {
			return err
		}
		if v := resp.Header.Get(replayHeader); v != "" {
			var err error
			if again, err = x.replayOf(v); err == nil {
				err = errReplay
			}
			return err
		}
		x.editAnswer(resp.Header)
		return nil
	}
	var res hop.Result
	err := x.p.far.untilAnswered(ctx, b.worker, func() (err error) {
		once := *req
		res, err = x.p.carryRequest(ctx, x.w, &once, b)
		if errors.Is(err, errLeaving) && !x.body.rewindBody() {
			err = badAnswer(err, b.Machine)
		}
		return err
	})
	x.code, x.bytes = res.Code, res.Bytes
	if errors.Is(err, errReplay) {
		if !x.body.rewindBody() {
			return nil, fault.New(fault.Invalid, codeReplayBody,
				"the request cannot be handed on by fly-replay, because its body is larger than %d bytes", maxReplayed)
		}
		return again, nil
	}
	return nil, x.explainError(ctx, b, err)
}

// explainError turns a hop's error into the proxy's.
func (x *exchange) explainError(ctx context.Context, b *backend, err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*correction](err); ours {
		return err
	}
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return err
	}
	var slow net.Error
	switch {
	case ctx.Err() != nil, errors.Is(err, hop.ErrBody) && errors.Is(err, io.ErrUnexpectedEOF):
		return errClientGone
	case errors.Is(err, hop.ErrBody), errors.Is(err, hop.ErrRequest):
		return fault.Wrap(err, fault.Invalid, machine.CodeBody, "the body of the request does not match its headers")
	case errors.As(err, &slow) && slow.Timeout():
		return fault.Wrap(err, fault.Timeout, fault.CodeNoAnswer,
			"machine %s took the request and did not answer within %v",
			b.Machine, b.idle)
	}
	return badAnswer(err, b.Machine)
}

// carryRequest sends a request to a machine of this process, or to the member that has it.
func (p *Proxy) carryRequest(ctx context.Context, w http.ResponseWriter, r *hop.Request, b *backend) (hop.Result,
	error) {
	if b.own {
		return p.owner.carryRequest(ctx, w, r, b)
	}
	return p.far.carryRequest(ctx, w, r, b)
}
