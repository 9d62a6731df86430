package client

import (
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/soukhq/souk/api"
)

// ServiceCalls are the client's calls on services that outside requests can reach.
type ServiceCalls struct{ transport }

// Services lists the services of an app, "" for all apps.
func (c ServiceCalls) Services(ctx context.Context, app string) (list api.ServiceList, err error) {
	k := newCall(api.ListServices)
	if app != "" {
		k = k.withQuery(url.Values{"app": {app}})
	}
	err = c.doCall(ctx, k, &list)
	return list, err
}

// Routes lists the names and ports of apps at the answering member.
func (c ServiceCalls) Routes(ctx context.Context) (list api.RouteList, err error) {
	err = c.doCall(ctx, newCall(api.ListRoutes), &list)
	return list, err
}

// Request returns the record of an earlier request that came in at the answering member.
func (c ServiceCalls) Request(ctx context.Context, id string) (q api.ProxiedRequest, err error) {
	err = c.doCall(ctx, newCall(api.GetRequest, id), &q)
	return q, err
}

// Forward connects to a port of a machine: it sends the bytes of in, and writes the machine's bytes to out, until the
// machine has closed its end or ctx ends. The caller must close in then. ref is an id or a name.
func (c ServiceCalls) Forward(ctx context.Context, app, ref string, port int, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.sendCall(ctx, newCall(api.DialMachine, app, ref, strconv.Itoa(port)).withBody(in).
		withHeader("Content-Type", api.Bytes))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		return brokenError(ctx, err)
	}
	return nil
}
