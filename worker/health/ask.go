package health

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reach"
)

// Bounds of a response.
const (
	maxAnswer  = 64 << 10 // bytes of it that are read: headers, and the start of the body
	maxBody    = 256      // bytes of its body that are shown
	maxReason  = 256      // bytes of the reason for a failure
	maxInterim = 8        // responses of 100 to 199 before the final one
)

// verdict is the result of a check.
type verdict struct{ status, output string }

// askOnce makes a check once. refused is not nil if nothing listens at the port.
func (c *Checker) askOnce(ctx context.Context, m *machine.Machine, h *machine.HealthCheck) (v verdict, refused error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	conn, err := c.o.Dial(ctx, m, h.Port)
	if reach.Refuses(err) {
		refused = err
	}
	if err != nil {
		return failedVerdict(h, err), refused
	}
	defer conn.Close()
	if !h.HTTP {
		return verdict{machine.CheckPassing, fmt.Sprintf("port %d accepts connections", h.Port)}, nil
	}
	if until, bounded := ctx.Deadline(); bounded {
		err = conn.SetDeadline(until)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // souk ends
	defer stop()
	var a answer
	if err == nil {
		a, err = c.getHTTP(ctx, conn, m, h)
	}
	if err != nil {
		return failedVerdict(h, err), nil
	}
	return a.judgeAnswer(), nil
}

// answer is the part of a response that a check reads.
type answer struct {
	status   int
	location string
	body     []byte // the start of it
}

// getHTTP sends the request of a check and reads the start of the response.
func (c *Checker) getHTTP(ctx context.Context, conn net.Conn, m *machine.Machine, h *machine.HealthCheck) (answer,
	error) {
	req, err := checkRequest(m, h)
	if err != nil {
		return answer{}, err
	}
	if h.TLS {
		secure := tls.Client(conn, &tls.Config{ServerName: serverName(h, req.Host), RootCAs: c.o.Roots,
			InsecureSkipVerify: h.SkipVerify, //nolint:gosec // where its config says so
			NextProtos:         []string{"http/1.1"}})
		if err := secure.HandshakeContext(ctx); err != nil {
			return answer{}, err
		}
		conn = secure
	}
	if err := req.Write(conn); err != nil {
		return answer{}, err
	}
	in := bufio.NewReaderSize(io.LimitReader(conn, maxAnswer), 1024)
	for range maxInterim {
		resp, err := http.ReadResponse(in, req)
		if err != nil {
			return answer{}, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // the status is known, and decides
		return answer{resp.StatusCode, resp.Header.Get("Location"), body}, nil
	}
	return answer{}, fault.New(fault.Unavailable, fault.CodeCheck, "the server answers with interim (1xx) statuses "+
		"only")
}

// checkRequest makes the request of a check.
func checkRequest(m *machine.Machine, h *machine.HealthCheck) (*http.Request, error) {
	u, err := url.ParseRequestURI(h.Path)
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: h.Method, URL: &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery},
		Host: hostOf(m, h.Port), Close: true,
		Header: http.Header{"User-Agent": {"souk-health-check"}},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	for _, x := range h.Headers {
		if strings.EqualFold(x.Name, "host") {
			if len(x.Values) > 0 {
				req.Host = x.Values[0]
			}
			continue
		}
		req.Header[http.CanonicalHeaderKey(x.Name)] = x.Values
	}
	return req, nil
}

// hostOf returns the Host header of a check: a name under which the machine gets requests, since many apps refuse
// others. It is the first name without a wildcard of the port's service, else its first name, else the app's.
func hostOf(m *machine.Machine, port int) string {
	if m.Config == nil {
		return m.App
	}
	for i := range m.Config.Services {
		s := &m.Config.Services[i]
		if s.InternalPort != port || len(s.Hosts) == 0 {
			continue
		}
		for _, name := range s.Hosts {
			if strings.Contains(name, ".") {
				return name
			}
		}
		return s.Hosts[0]
	}
	return cmp.Or(m.App, "localhost")
}

// serverName returns the name that the machine's certificate must have.
func serverName(h *machine.HealthCheck, host string) string {
	if h.ServerName != "" {
		return h.ServerName
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// judgeAnswer returns the verdict on a response.
func (a *answer) judgeAnswer() verdict {
	status := a.status
	v := verdict{machine.CheckCritical, strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))}
	switch {
	case status >= 200 && status < 300:
		v.status = machine.CheckPassing
	case status == http.StatusTooManyRequests:
		v.status = machine.CheckWarning
	case status >= 300 && status < 400:
		v.output += " (redirects are not followed)"
		if to := printableStart(a.location, maxReason); to != "" {
			v.output = strings.TrimSuffix(v.output, ")") + ", and this one leads to " + to + ")"
		}
	}
	if text := printableStart(string(a.body), maxBody); text != "" {
		v.output += "\n" + text
	}
	return v
}

// failedVerdict returns the verdict if there is no response.
func failedVerdict(h *machine.HealthCheck, err error) verdict {
	why := ""
	known, isFault := errors.AsType[*fault.Error](err)
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case isFault && known.Code == reach.CodeOther:
		return verdict{machine.CheckCritical, known.Text}
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		why = fmt.Sprintf("no answer within %v", h.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		why = "the connection was closed before a whole answer"
	case isFault:
		why = known.Text
	default:
		if op, is := errors.AsType[*net.OpError](err); is && op.Err != nil { // without ports, which differ each time
			err = op.Err
		}
		why = err.Error()
	}
	return verdict{machine.CheckCritical, fmt.Sprintf("port %d: %s", h.Port, printableStart(why, maxReason))}
}

// printableStart returns the start of a text in one line, without unprintable characters.
func printableStart(s string, most int) string {
	s = strings.ToValidUTF8(s[:min(len(s), most)], "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s))
}
