package cli

import (
	"bytes"
	"context"
	"fmt"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// atOnce bounds how many machines a command works on at once.
const atOnce = 16

// part is the output and result of one reference.
type part struct {
	out, errs bytes.Buffer
	err       error
	ended     chan struct{}
}

// Together is Each with several references at once: the output of each f, on its own Env, is printed as a whole, in the
// order of the references.
func (c *Env) Together(ctx context.Context, refs []string,
	f func(context.Context, *Env, *client.Client, *machine.Machine) error) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if refs, err = c.Members(ctx, cl, refs); err != nil {
		return err
	}
	if len(refs) == 1 { // on the terminal itself, with its progress
		return c.Each(ctx, refs, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			return f(ctx, c, cl, m)
		})
	}
	parts := make([]part, len(refs))
	for i := range parts {
		parts[i].ended = make(chan struct{})
	}
	places := make(chan struct{}, atOnce)
	go func() {
		for i := range parts {
			places <- struct{}{} // even after ctx has ended: each part must end
			go func() {
				defer func() { <-places; close(parts[i].ended) }()
				parts[i].err = c.one(ctx, cl, refs[i], &parts[i], f)
			}()
		}
	}()
	var failed []error
	for i := range parts {
		p := &parts[i]
		<-p.ended
		_, _ = c.Out.Write(p.out.Bytes()) // a closed stream cannot report errors
		_, _ = c.Err.Write(p.errs.Bytes())
		if p.err == nil {
			continue
		}
		failed = append(failed, p.err)
		if ctx.Err() == nil {
			c.PrintError(fmt.Errorf("%s: %w", refs[i], p.err))
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return Several{Errs: failed}
}

// one calls f for one reference, and keeps its output in p.
func (c *Env) one(ctx context.Context, cl *client.Client, ref string, p *part,
	f func(context.Context, *Env, *client.Client, *machine.Machine) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m, err := c.Find(ctx, cl, ref)
	if err != nil {
		return err
	}
	mine := &Env{In: c.In, Out: &p.out, Err: &p.errs, Getenv: c.Getenv, JSON: c.JSON, app: c.app, addr: c.addr,
		context: c.context}
	return f(ctx, mine, cl, m)
}
