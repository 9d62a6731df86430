package health

import (
	"bufio"
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
)

// Bounds of an answer.
const (
	maxAnswer  = 64 << 10 // bytes of it that are read: headers, and the body's beginning
	maxBody    = 256      // bytes of its body that are shown
	maxReason  = 256      // bytes of why a check does not pass
	maxInterim = 8        // answers of 100 to 199 before the one that counts
)

// verdict is what a check says.
type verdict struct{ status, output string }

// ask makes a check once.
func (c *Checker) ask(ctx context.Context, m *machine.Machine, h *machine.HealthCheck) verdict {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	conn, err := c.o.Dial(ctx, m, h.Port)
	if err != nil {
		return failed(h, err)
	}
	defer conn.Close()
	if !h.HTTP {
		return verdict{machine.CheckPassing, fmt.Sprintf("port %d accepts connections", h.Port)}
	}
	if until, bounded := ctx.Deadline(); bounded {
		err = conn.SetDeadline(until)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // souk ends
	defer stop()
	var status int
	var body []byte
	if err == nil {
		status, body, err = c.get(ctx, conn, h)
	}
	if err != nil {
		return failed(h, err)
	}
	return judge(status, body)
}

// get sends the request of a check and reads the beginning of the answer.
func (c *Checker) get(ctx context.Context, conn net.Conn, h *machine.HealthCheck) (int, []byte, error) {
	req, err := request(h)
	if err != nil {
		return 0, nil, err
	}
	if h.TLS {
		secure := tls.Client(conn, &tls.Config{ServerName: serverName(h, req.Host), RootCAs: c.o.Roots,
			InsecureSkipVerify: h.SkipVerify, //nolint:gosec // where its config says so
			NextProtos:         []string{"http/1.1"}})
		if err := secure.HandshakeContext(ctx); err != nil {
			return 0, nil, err
		}
		conn = secure
	}
	if err := req.Write(conn); err != nil {
		return 0, nil, err
	}
	in := bufio.NewReaderSize(io.LimitReader(conn, maxAnswer), 1024)
	for range maxInterim {
		resp, err := http.ReadResponse(in, req)
		if err != nil {
			return 0, nil, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // the status has been said, and counts
		return resp.StatusCode, body, nil
	}
	return 0, nil, fault.New(fault.Unavailable, "check", "it answers with nothing but interim statuses")
}

// request makes the request of a check.
func request(h *machine.HealthCheck) (*http.Request, error) {
	u, err := url.ParseRequestURI(h.Path)
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: h.Method, URL: &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery},
		Host: fmt.Sprintf("localhost:%d", h.Port), Close: true,
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

// judge returns what an answer says of the machine.
func judge(status int, body []byte) verdict {
	v := verdict{machine.CheckCritical, strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))}
	switch {
	case status >= 200 && status < 300:
		v.status = machine.CheckPassing
	case status == http.StatusTooManyRequests:
		v.status = machine.CheckWarning
	case status >= 300 && status < 400:
		v.output += " (redirects are not followed)"
	}
	if text := printable(string(body), maxBody); text != "" {
		v.output += "\n" + text
	}
	return v
}

// failed returns what it says of a machine that it did not answer.
func failed(h *machine.HealthCheck, err error) verdict {
	why := ""
	known, isFault := errors.AsType[*fault.Error](err)
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
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
	return verdict{machine.CheckCritical, fmt.Sprintf("port %d: %s", h.Port, printable(why, maxReason))}
}

// printable returns the beginning of a text in one line, with what cannot be printed left out.
func printable(s string, most int) string {
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
