package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// How long a server may take to prove itself, and how often to reconnect if the connection breaks off before.
const (
	proofPatience = 10 * time.Second
	proofTries    = 8
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// proven dials servers without TLS, and returns a connection only after the other end has proved on it that it knows
// the token. Any program may take the port of a souk that is down.
func proven(token string, dial dialer) dialer {
	digest := api.TokenDigest(token)
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		for range proofTries {
			if c, err = dial(ctx, network, addr); err != nil {
				return nil, err
			}
			if err = demand(ctx, c, addr, digest); err == nil {
				return c, nil
			}
			err = errors.Join(err, c.Close())
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
				break // a break proves nothing: a flooded server drops unauthenticated connections
			}
		}
		return nil, err
	}
}

// demand makes the other end prove that it knows the token with a digest.
func demand(ctx context.Context, c net.Conn, addr, digest string) error {
	late, has := ctx.Deadline()
	if limit := time.Now().Add(proofPatience); !has || limit.Before(late) {
		late = limit
	}
	if err := c.SetDeadline(late); err != nil {
		return err
	}
	at := ""
	if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		at = api.ProvenAt(remote.AddrPort())
	}
	nonce := rand.Text()
	p, err := ask(ctx, c, addr, url.Values{"token": {api.TokenID(digest)}, "nonce": {nonce}})
	switch {
	case fault.CodeOf(err) == fault.CodeUnauthenticated:
		return err
	case err != nil:
		return fault.Wrap(err, fault.Denied, codeProof,
			"%s did not prove that it knows the token, so the token was not sent: another program listens there, or "+
				"a souk with another token, or an older souk, which must be restarted with this build",
			addr)
	case p.Is(api.ProofOf(digest, at, nonce)):
		return c.SetDeadline(time.Time{})
	case p.Is(api.ProofOf(digest, p.At, nonce)):
		return fault.New(fault.Denied, codeProof,
			"the souk behind %s listens at %s, so something at %s forwards connections and could record the token; "+
				"use a tunnel with the same address and port at both ends, or one to souk.sock (SOUK_ADDR=unix:PATH)",
			addr, p.At, at)
	}
	return fault.New(fault.Denied, codeProof, "%s could not prove that it knows the token, so the token was not "+
		"sent; is another program on that port?", addr)
}

// ask makes the one request that carries no token, on a connection.
func ask(ctx context.Context, c net.Conn, addr string, q url.Values) (p api.Proof, err error) {
	req, err := http.NewRequestWithContext(ctx, api.Prove.Method(), "http://"+addr+api.Prove.Path()+"?"+q.Encode(), nil)
	if err == nil {
		err = req.Write(c)
	}
	if err != nil {
		return p, err
	}
	in := bufio.NewReader(io.LimitReader(c, 64<<10))
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return p, err
	}
	raw, err := io.ReadAll(resp.Body)
	var no api.ErrorBody
	switch {
	case err != nil:
		return p, err
	case resp.StatusCode == http.StatusUnauthorized && json.Unmarshal(raw, &no) == nil && no.Error != "":
		return p, fault.New(fault.Denied, fault.CodeUnauthenticated, "%s", strings.Map(Printable, no.Error))
	case resp.StatusCode != http.StatusOK || resp.Close:
		return p, errors.New("it answered " + resp.Status)
	case in.Buffered() > 0:
		return p, errors.New("it said more than it was asked")
	}
	return p, json.Unmarshal(raw, &p)
}
