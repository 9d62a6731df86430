package hop

import (
	"bufio"
	"context"
	"errors"
	"math"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Field is a header to set.
type Field struct{ Name, Value string }

// Request is a client's request and how Exchange carries it.
type Request struct {
	*http.Request
	Set    []Field                // replace the client's headers of these names
	Drop   func(name string) bool // which other headers to leave out; nil: only hop-by-hop ones
	Header time.Duration          // how long to wait for the answer's head; 0: no bound
	Idle   time.Duration          // longest pause within the answer; 0: no bound
	// Whose names the client, the only one that may reuse a tied connection; "": unknown.
	Whose string

	// Answer is called with the head of the answer before any of it is written. If it returns an error, Exchange
	// returns that and writes nothing. nil: all answers are passed on.
	Answer func(*http.Response) error
}

// Result is what became of a request.
type Result struct {
	Code     int       // status of the answer; 0: there was none
	Bytes    int64     // of the answer's body that were passed on
	First    time.Time // when the answer's head came
	Unsent   bool      // with an error: the backend did nothing, so the request may go elsewhere
	Reusable bool      // the connection may be kept
	Upgraded bool      // it was upgraded to another protocol, and has ended
}

// ErrAnswer is wrapped by errors of the other end: it closed the connection, or did not answer in HTTP.
var ErrAnswer = errors.New("no answer") //nolint:gochecknoglobals // a constant

// ErrBody is wrapped by errors of the client: the body of the request could not be read to its end.
var ErrBody = errors.New("the body of the request is broken off") //nolint:gochecknoglobals // a constant

// ErrRequest is wrapped where a request cannot be written unambiguously.
var ErrRequest = errors.New("no request line") //nolint:gochecknoglobals // a constant

// Exchange sends a request over c and passes the answer on to w. On an error nothing was written to w unless Code is
// set; then the answer is incomplete and the server must abort its connection, too (http.ErrAbortHandler).
func Exchange(w http.ResponseWriter, r *Request, c *Conn) (res Result, err error) {
	stop := context.AfterFunc(r.Context(), func() { c.Close() })
	early := false // the answer came before all of the request had gone
	defer func() {
		if early || !stop() { // or the connection is closed or closing
			res.Reusable = false
		}
	}()
	upgrade := upgradeOf(r.Request)
	c.holdWrites(!hasBody(r.Request))
	if err := writeHead(c.bw, r, upgrade); err != nil {
		return Result{Unsent: true}, err
	}
	var body *sending
	if hasBody(r.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
		body = newSending(r)
		if err := c.bw.Flush(); err != nil {
			return Result{Unsent: true}, err
		}
		if !expectsContinue(r.Request) {
			body.startCopy(c, r)
		}
		defer func() {
			if !body.endBody(w, r.Request, c, err != nil) {
				res.Reusable = false
			}
			res.Unsent = res.Unsent && body.isUntouched()
			if err != nil && res.Code == 0 && body.from.err != nil {
				err = errors.Join(ErrBody, body.from.err)
			}
		}()
	} else if err := c.bw.Flush(); err != nil {
		return Result{Unsent: true}, err
	}
	resp, unsent, err := awaitHead(w, r, c, body)
	if err != nil {
		return Result{Unsent: unsent}, errors.Join(ErrAnswer, err)
	}
	res.First = time.Now()
	early = body != nil && !body.from.isWhole()
	if r.Answer != nil {
		if err := r.Answer(resp); err != nil {
			res.Reusable = drainRest(resp)
			return res, err
		}
	}
	res.Code = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return switchOver(w, r, c, resp, upgrade, res)
	}
	if body != nil && r.ProtoMajor == 1 && !body.from.isWhole() {
		// What is left of the body must not be read as another request (RFC 9112, 9.6), and net/http does not ensure
		// that once full duplex is on.
		w.Header().Set("Connection", "close")
	}
	if r.Idle == 0 {
		c.setPatience(0)
	}
	res.Bytes, err = passOn(w, resp, c, r.Idle)
	res.Reusable = err == nil && !resp.Close
	return res, err
}

// anAnswer is how each answer begins.
const anAnswer = "HTTP/"

var errLeft = errors.New("what came is left of an answer before") //nolint:gochecknoglobals // a constant

// awaitHead waits for the head of the answer, and sends the body meanwhile. unsent is as in Result.
func awaitHead(w http.ResponseWriter, r *Request, c *Conn, body *sending) (resp *http.Response, unsent bool,
	err error) {
	c.left = MaxHead + readAhead
	if body != nil && expectsContinue(r.Request) {
		body.startAfter(c, r)
	}
	c.setPatience(r.Header)
	again := c.used && IsSafe(r.Method)
	if first, err := c.br.Peek(len(anAnswer)); err != nil && len(first) == 0 {
		return nil, c.isUnsent() || again && !errors.Is(err, os.ErrDeadlineExceeded), err
	} else if c.used && string(first) != anAnswer {
		c.strange = true
		return nil, again, errLeft
	}
	if body == nil {
		c.holdWrites(false)
	}
	head, _ := c.br.Peek(c.br.Buffered()) // a whole head stays in the buffer while it is parsed
	whole := isWholeHead(head)
	resp, err = readHead(w, c.br, r.Request, body.mayGo(c, r))
	if err == nil {
		resp.Close = resp.Close || isUnsure(resp, head)
		c.whose, c.bodyless = r.Whose, isBodyless(resp)
		c.unsure = body != nil || c.bodyless || resp.TransferEncoding != nil && !whole
		c.used, c.left = true, math.MaxInt64
		c.learnKeepAlive(resp.Header)
	}
	return resp, false, err
}

// hasBody reports whether a request has anything behind its head.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// IsSafe reports whether a request of a method may be sent again when it may already have been carried out. A merely
// idempotent one may not: it could undo a change made between the two.
func IsSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// IsRepeatable reports whether a request may be sent again as it is: its method is safe and it has no body.
func (r *Request) IsRepeatable() bool {
	return IsSafe(r.Method) && (r.Body == nil || r.Body == http.NoBody)
}

// hopByHop are the headers of one hop (RFC 9110, 7.6.1), and those that frame a message.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Http2-Settings", "Host", "Expect":
		return true
	}
	return false
}

// OfOneHop reports whether a header, by its canonical name, is one of a hop or frames a message: it is not passed on.
func OfOneHop(name string) bool { return hopByHop(name) }

// connectionNames returns the headers that Connection names, in canonical form; they are hop-by-hop, too.
func connectionNames(h http.Header) (names []string) {
	for _, v := range h["Connection"] {
		for n := range strings.SplitSeq(v, ",") {
			if n = textproto.TrimString(n); n != "" {
				names = append(names, textproto.CanonicalMIMEHeaderKey(n))
			}
		}
	}
	return names
}

// upgradeOf returns the protocol that a request wants its connection to become; "": none. h2c is refused: its later
// requests would bypass the checks here.
func upgradeOf(r *http.Request) string {
	if r.ProtoMajor != 1 || hasBody(r) { // bytes after the head would be ambiguous
		return ""
	}
	for _, n := range connectionNames(r.Header) {
		if n == "Upgrade" {
			if u := r.Header.Get("Upgrade"); !strings.EqualFold(u, "h2c") && !strings.Contains(u, ",") {
				return u
			}
		}
	}
	return ""
}

// writeHead writes the head of a request, framed anew.
func writeHead(bw *bufio.Writer, r *Request, upgrade string) error {
	target := Target(r.Request)
	if !httpguts.ValidHeaderFieldName(r.Method) || !isTarget(target) {
		return ErrRequest
	}
	bw.WriteString(r.Method)
	bw.WriteByte(' ')
	bw.WriteString(target)
	bw.WriteString(" HTTP/1.1\r\nHost: ")
	writeValue(bw, r.Host)
	bw.WriteString("\r\n")
	drop := connectionNames(r.Request.Header)
	for name, values := range r.Request.Header {
		if hopByHop(name) || r.Drop != nil && r.Drop(name) || hasName(drop, name) || isSet(r.Set, name) {
			continue
		}
		for _, v := range values {
			writeField(bw, name, v)
		}
	}
	for _, f := range r.Set {
		if f.Value != "" {
			writeField(bw, f.Name, f.Value)
		}
	}
	if acceptsTrailers(r.Request.Header) {
		writeField(bw, "Te", "trailers")
	}
	switch {
	case upgrade != "":
		writeField(bw, "Connection", "Upgrade")
		writeField(bw, "Upgrade", upgrade)
	case !hasBody(r.Request) && r.ContentLength == 0 && hasLength(r.Method):
		writeField(bw, "Content-Length", "0")
	}
	if hasBody(r.Request) {
		if expectsContinue(r.Request) {
			writeField(bw, "Expect", "100-continue")
		}
		if r.ContentLength > 0 {
			writeField(bw, "Content-Length", strconv.FormatInt(r.ContentLength, 10))
		} else {
			writeField(bw, "Transfer-Encoding", "chunked")
		}
	}
	_, err := bw.WriteString("\r\n")
	return err
}

// Target returns the target of a request byte for byte as the client wrote it: some apps distinguish %2F from / and //
// from /. A # is escaped, since some parsers end the target there.
func Target(r *http.Request) string {
	raw := r.RequestURI
	if raw != "" && raw[0] != '/' && raw != "*" { // a whole URI: the path is behind its host
		_, rest, found := strings.Cut(raw, "://")
		if at := strings.IndexAny(rest, "/?"); found && at >= 0 {
			raw = rest[at:]
		} else {
			raw = ""
		}
	}
	switch {
	case raw == "*" && r.Method == http.MethodOptions:
		return raw
	case !strings.HasPrefix(raw, "/"), strings.Contains(raw, "#"):
		return r.URL.RequestURI()
	}
	return raw
}

// expectsContinue reports whether the client sends the body only after 100 Continue.
func expectsContinue(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor > 0 &&
		httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue")
}

// isTarget reports whether s can be a request line's target on whose end all parsers agree.
func isTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

// hasLength reports whether a request of a method sends Content-Length: 0 for an empty body (RFC 9110, 8.6).
func hasLength(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

func acceptsTrailers(h http.Header) bool {
	for _, v := range h["Te"] {
		if strings.Contains(strings.ToLower(v), "trailers") {
			return true
		}
	}
	return false
}

func hasName(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func isSet(set []Field, name string) bool {
	for i := range set {
		if set[i].Name == name {
			return true
		}
	}
	return false
}

func writeField(bw *bufio.Writer, name, value string) {
	bw.WriteString(name)
	bw.WriteString(": ")
	writeValue(bw, value)
	bw.WriteString("\r\n")
}

// writeValue writes a header value without line breaks. net/http rejects them in requests; values that the proxy sets
// itself may contain some.
func writeValue(bw *bufio.Writer, v string) {
	if strings.ContainsAny(v, "\r\n\x00") {
		v = strings.Map(func(c rune) rune {
			if c == '\r' || c == '\n' || c == 0 {
				return ' '
			}
			return c
		}, v)
	}
	bw.WriteString(v)
}
