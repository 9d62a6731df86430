package wire

import (
	"context"
	"net"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// JoinOptions say who joins, and where.
type JoinOptions struct {
	Addr  string // of an issuer, host:port
	Token string // as `souk token join` printed it
	Name  pki.Name
	Dir   string           // the member's directory; its key is made there and stays there
	Now   func() time.Time // nil: time.Now
}

// joinTime bounds a join.
const joinTime = 30 * time.Second

// Join makes this a member: its certificate, the roots and the keys of gossip are in the directory when it returns, for
// pki.Load. It gives the addresses of members to gossip with. Nothing is sent before the other end has shown to be an
// issuer by the root that the token names. When the answer got lost, joining again with the same token and directory is
// safe.
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

// Renew gets this member another certificate, for a key made now, from the issuer at addr.
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

// Refresh gets this member the roots and keys of gossip that hold now, from the issuer at addr.
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

// Times of KeepRenewed.
const (
	RefreshEvery = 24 * time.Hour // the bundle; pki.Overlap leaves a week for it
	lookEvery    = time.Hour      // whether something is due, or was put into the directory
)

// Upkeep renews a member's certificate when a third of its life is over, and looks at the issuer's bundle once a day.
type Upkeep struct {
	Client    *Client
	Issuers   func() []string // addresses, tried in order; may be empty for a while
	Local     Signer          // not nil where the CA is: nobody is called then
	Renewed   func()          // called once the member has another certificate than before; nil: nobody is
	refreshed time.Time
}

// Run does so until ctx ends, and tells failures. begin is when it looks first: members that were started at once
// should not all ask at once, so give a time drawn from the first hour.
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
	if err := c.identity.Reload(); err != nil { // somebody may have mended it by hand
		return err
	}
	now := c.now()
	if c.identity.RenewalDue(now) {
		if err := u.renewCertificate(ctx, now); err != nil {
			return err
		}
		u.refreshed = now // a renewal brings the bundle along
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

// Renew gets another certificate now.
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

// tryIssuers tries one issuer after the other.
func (u *Upkeep) tryIssuers(ctx context.Context, f func(ctx context.Context, addr string) error) error {
	err := error(fault.New(fault.Unavailable, pki.CodeIssuer, "no issuer is known; see that a member with the CA runs"))
	for _, addr := range u.Issuers() {
		if err = f(ctx, addr); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
