package wire

import (
	"context"
	"net"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// JoinOptions are the joining member's name, and its issuer.
type JoinOptions struct {
	Addr  string // host:port of an issuer
	Token string // as `souk token join` printed it
	Name  pki.Name
	Dir   string           // the member's directory; its key is made there and stays there
	Now   func() time.Time // nil: time.Now
}

// joinTime bounds a join.
const joinTime = 30 * time.Second

// Join makes this process a member: when it returns, the directory holds the certificate, the roots and the gossip
// keys, for pki.Load. It returns the gossip addresses of members. It sends nothing before the peer has proved to be an
// issuer under the root that the token names. If the answer got lost, joining again with the same token and directory
// is safe.
func Join(ctx context.Context, o JoinOptions) (members []string, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	token, err := pki.ParseToken(o.Token)
	if err != nil {
		return nil, err
	}
	req, err := pki.NewRequest(o.Dir)
	if err != nil {
		return nil, err
	}
	c := NewClient(nil, o.Now)
	l := c.Link("", "", func() string { return o.Addr })
	conf := pki.JoinTLS(token, o.Now, "h2")
	door := newTransport(func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return dialTLS(ctx, c.dial, o.Addr, conf)
	})
	l.now.Store(&wires{calls: door, streams: door})
	defer l.Close()
	var got joined
	if err := l.callMember(ctx, pathJoin, joinTime, joinArgs{o.Name, token.Secret, req.CSR}, &got); err != nil {
		return nil, err
	}
	return got.Members, req.Accept(o.Dir, got.Credentials, o.Now())
}

// Renew fetches a new certificate for this member, for a new key, from the issuer at addr.
func (c *Client) Renew(ctx context.Context, addr string) error {
	req, err := c.identity.Request()
	if err != nil {
		return err
	}
	var got pki.Credentials
	if err := c.askIssuer(ctx, addr, pathRenew, renewArgs{req.CSR}, &got); err != nil {
		return err
	}
	return c.identity.Accept(req, got, c.now())
}

// Refresh fetches the current roots and gossip keys from the issuer at addr.
func (c *Client) Refresh(ctx context.Context, addr string) error {
	var got pki.Credentials
	if err := c.askIssuer(ctx, addr, pathBundle, none{}, &got); err != nil {
		return err
	}
	return c.identity.Trust(got, c.now())
}

func (c *Client) askIssuer(ctx context.Context, addr, path string, in, out any) error {
	l := c.Link("", pki.Issuer, func() string { return addr })
	defer l.Close()
	return l.callMember(ctx, path, joinTime, in, out)
}

// Intervals of Upkeep.
const (
	RefreshEvery = 24 * time.Hour // fetch the bundle; pki.Overlap leaves a week for it
	lookEvery    = time.Hour      // check whether a renewal is due, or the directory was changed
)

// Upkeep renews a member's certificate when a third of its validity is over, and fetches the issuer's bundle once a
// day.
type Upkeep struct {
	Client    *Client
	Issuers   func() []string // addresses, tried in order; may be empty for a while
	Local     Signer          // not nil on the issuer: no other member is called then
	Renewed   func()          // called after the member's certificate was replaced; may be nil
	refreshed time.Time
}

// Run calls Look every hour until ctx ends, and reports failures to failed. begin is the delay before the first call:
// pass a random time of up to an hour, so that members started together do not all call at once.
func (u *Upkeep) Run(ctx context.Context, begin time.Duration, failed func(error)) {
	t := time.NewTimer(begin)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := u.Look(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		t.Reset(lookEvery)
	}
}

// Look does once what is due now.
func (u *Upkeep) Look(ctx context.Context) error {
	c := u.Client
	before := c.identity.Begins()
	defer func() {
		if u.Renewed != nil && !c.identity.Begins().Equal(before) {
			u.Renewed()
		}
	}()
	if err := c.identity.Reload(); err != nil { // an operator may have replaced the files
		return err
	}
	now := c.now()
	if c.identity.RenewalDue(now) {
		if err := u.renewCertificate(ctx, now); err != nil {
			return err
		}
		u.refreshed = now // a renewal includes the bundle
	}
	if now.Sub(u.refreshed) < RefreshEvery {
		return nil
	}
	if err := u.refreshBundle(ctx, now); err != nil {
		return err
	}
	u.refreshed = now
	return nil
}

// Renew replaces the certificate now.
func (u *Upkeep) Renew(ctx context.Context) error { return u.renewCertificate(ctx, u.Client.now()) }

func (u *Upkeep) renewCertificate(ctx context.Context, now time.Time) error {
	if u.Local == nil {
		return u.tryIssuers(ctx, u.Client.Renew)
	}
	id := u.Client.identity
	req, err := id.Request()
	if err != nil {
		return err
	}
	got, err := u.Local.Renew(now, id.Name(), req.CSR)
	if err != nil {
		return err
	}
	return id.Accept(req, got, now)
}

func (u *Upkeep) refreshBundle(ctx context.Context, now time.Time) error {
	if u.Local == nil {
		return u.tryIssuers(ctx, u.Client.Refresh)
	}
	got, err := u.Local.Bundle()
	if err != nil {
		return err
	}
	return u.Client.identity.Trust(got, now)
}

// tryIssuers tries one issuer after the other until one succeeds.
func (u *Upkeep) tryIssuers(ctx context.Context, f func(ctx context.Context, addr string) error) error {
	err := error(fault.New(fault.Unavailable, pki.CodeIssuer, "no issuer is known; see that a member with the CA runs"))
	for _, addr := range u.Issuers() {
		if err = f(ctx, addr); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
