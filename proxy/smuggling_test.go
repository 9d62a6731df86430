package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

// recorder is a machine that keeps every byte that it is sent, and answers what a strict reader takes for a request.
type recorder struct {
	mu    sync.Mutex
	conns []*bytes.Buffer
	seen  []string // targets of its requests
	total int      // of them, at all
}

func (r *recorder) serve(c net.Conn) {
	all := &bytes.Buffer{}
	r.mu.Lock()
	r.conns = append(r.conns, all)
	r.mu.Unlock()
	br := bufio.NewReader(io.TeeReader(c, &locked{r, all}))
	for {
		q, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		n, err := io.Copy(io.Discard, q.Body)
		r.mu.Lock()
		if err == nil {
			r.total++
			r.seen = append(r.seen, fmt.Sprintf("%s %s %d", q.Method, q.RequestURI, n))
		}
		r.mu.Unlock()
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

type locked struct {
	r *recorder
	b *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return l.b.Write(b)
}

// take returns the requests that came since it was called last, and how many came at all.
func (r *recorder) take() (seen []string, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, r.seen = r.seen, nil
	return seen, r.total
}

// check looks at every byte that came: what proxies sent must be one thing to all who read it.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total == 0 {
		t.Error("nothing came at all")
	}
	for _, b := range r.conns {
		if why := unambiguous(b.String()); why != "" {
			t.Error(why)
		}
	}
}

var (
	requestLine = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^\\x00-\\x20\\x7f]+ HTTP/1\\.1$")
	fieldLine   = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)$")
)

// unambiguous reports what in a stream of requests two readers could read in two ways; "": nothing. It may end within a
// request.
func unambiguous(s string) string {
	for s != "" {
		head, rest, found := strings.Cut(s, "\r\n\r\n")
		if !found {
			return ""
		}
		lines := strings.Split(head, "\r\n")
		if !requestLine.MatchString(lines[0]) {
			return "the request line " + strconv.Quote(lines[0])
		}
		fields := map[string][]string{}
		for _, l := range lines[1:] {
			m := fieldLine.FindStringSubmatch(l)
			if m == nil {
				return "the field " + strconv.Quote(l)
			}
			name := strings.ReplaceAll(strings.ToLower(m[1]), "_", "-")
			fields[name] = append(fields[name], m[2])
		}
		length, coding := fields["content-length"], fields["transfer-encoding"]
		switch {
		case len(fields["host"]) != 1:
			return fmt.Sprintf("%d hosts", len(fields["host"]))
		case len(length) > 1, len(coding) > 1, len(length) > 0 && len(coding) > 0:
			return fmt.Sprintf("its length is %q, its coding %q", length, coding)
		case len(coding) == 1:
			if coding[0] != "chunked" {
				return "the coding " + strconv.Quote(coding[0])
			}
			for {
				size, more, ok := strings.Cut(rest, "\r\n")
				n, err := strconv.ParseUint(size, 16, 31)
				if !ok || err == nil && len(more) < int(n)+2 {
					return ""
				}
				if err != nil || n > 0 && more[n:n+2] != "\r\n" {
					return "the chunk " + strconv.Quote(size)
				}
				if n == 0 {
					_, rest, _ = strings.Cut("\r\n"+more, "\r\n\r\n") // trailers
					break
				}
				rest = more[n+2:]
			}
		case len(length) == 1:
			n, err := strconv.Atoi(length[0])
			if err == nil && n > len(rest) {
				return ""
			}
			if err != nil || strconv.Itoa(n) != length[0] {
				return "the length " + strconv.Quote(length[0])
			}
			rest = rest[n:]
		}
		s = rest
	}
	return ""
}

const smuggled = "GET /smuggled HTTP/1.1\r\nHost: shop.localhost\r\nX: y\r\n\r\n"

// attack is one payload.
type attack struct{ name, raw string }

func post(fields, body string) string {
	return "POST / HTTP/1.1\r\nHost: shop.localhost\r\n" + fields + "\r\n" + body
}

// attacks lists payloads after those of defparam/smuggler, http-garden and PortSwigger's papers. To one reader the
// request
// for /smuggled is within a body, to another it is a request.
func attacks() (out []attack) {
	add := func(name, raw string) { out = append(out, attack{name, raw}) }
	inChunk := chunked(smuggled) + "0\r\n\r\n"
	whole := strconv.Itoa(len(smuggled))
	// Transfer-Encoding as one end may understand it and the other may not.
	for i, te := range []string{
		"Transfer-Encoding: chunked", "Transfer-encoding: Chunked", "TRANSFER-ENCODING: chunked",
		"Transfer-Encoding:chunked",
		"Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ", "Transfer-Encoding: chunked\t",
		"Transfer-Encoding : chunked",
		"Transfer-Encoding\t: chunked", " Transfer-Encoding: chunked", "\tTransfer-Encoding: chunked",
		"Transfer-Encoding: xchunked", "Transfer-Encoding: chunkedx", "Transfer-Encoding: chunk",
		"Transfer-Encoding: \"chunked\"",
		"Transfer-Encoding: 'chunked'", "Transfer-Encoding: [chunked]", "Transfer-Encoding: chunked, identity",
		"Transfer-Encoding: identity, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked",
		"Transfer-Encoding: chunked, gzip", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked;q=1",
		"Transfer-Encoding: ,chunked", "Transfer-Encoding: chunked,", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding: \x0cchunked", "Transfer-Encoding: chunked\x0b", "Transfer-Encoding: \x00chunked",
		"Transfer-Encoding: chunked\x00", "Transfer-Encoding: \xffchunked", "Transfer-Encoding: ch\xc3\xb9nked",
		"Transfer-Encoding: \rchunked", "Transfer-Encoding: chunked\r", "Transfer-Encoding:\r\n chunked",
		"Transfer-Encoding:\r\n\tchunked", "Transfer-Encoding:\n chunked", "Transfer-Encoding\r\n: chunked",
		"Transfer\r\n-Encoding: chunked", "Transfer-Encoding\x00: chunked", "Transfer\x00-Encoding: chunked",
		"\x00Transfer-Encoding: chunked", "Transfer\x01-Encoding: chunked", "Transfer-Encoding\xff: chunked",
		"Transfer_Encoding: chunked", "Transfer Encoding: chunked", "Transfer-Encoding:: chunked",
		"Transfer-Encoding chunked",
		"X: y\rTransfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked", "X: y\r\n\nTransfer-Encoding: chunked",
		"X:\nTransfer-Encoding: chunked", "X: y\x00\r\nTransfer-Encoding: chunked",
		"Connection: Transfer-Encoding\r\n" +
			"Transfer-Encoding: chunked", "Connection: Content-Length\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
		"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
		"Transfer-Encoding: x\r\nTransfer-Encoding: chunked", "Transfer-Encoding:\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\ntransfer_encoding: x", "Content-Encoding: chunked", "TE: chunked",
	} {
		add(fmt.Sprintf("TE %d alone", i), post(te+"\r\n", inChunk))
		add(fmt.Sprintf("TE %d TE.CL", i), post("Content-Length: 4\r\n"+te+"\r\n", inChunk))
		add(fmt.Sprintf("TE %d CL.TE", i), post(te+"\r\nContent-Length: "+strconv.Itoa(len(inChunk))+"\r\n", inChunk))
		add(
			fmt.Sprintf("TE %d 1.0", i),
			strings.Replace(post(te+"\r\nContent-Length: "+strconv.Itoa(len(inChunk))+"\r\n",
				inChunk), "HTTP/1.1", "HTTP/1.0", 1),
		)
	}
	// Content-Length as one end may count it and the other may not.
	for i, cl := range []string{
		"Content-Length: 0\r\nContent-Length: " + whole, "Content-Length: " + whole + "\r\nContent-Length: 0",
		"Content-Length: " + whole + "\r\nContent-Length: " + whole, "Content-Length: 0, " + whole,
		"Content-Length: " + whole + ", " + whole, "Content-Length: +" + whole, "Content-Length: -1",
		"Content-Length: 0x10",
		"Content-Length: 0" + whole, "Content-Length: " + whole + ".0", "Content-Length: 1e1", "Content-Length: 1_0",
		"Content-Length: \"" + whole + "\"", "Content-Length : " + whole, "Content-Length\t: " + whole,
		" Content-Length: " + whole, "Content-Length:\x0b" + whole, "Content-Length: " + whole + "\x0b",
		"Content-Length: " + whole + "\x00", "Content-Length: \x00" + whole, "Content-Length: \r\n " + whole,
		"Content-Length:\n " + whole, "Content-Length: 99999999999999999999", "Content-Length: 18446744073709551616",
		"Content-Length: 4294967296", "Content-Length: " + whole + " 0", "Content-Length: 0 " + whole,
		"Content-Length:",
		"Content-Length: ", "Content_Length: " + whole, "Content Length: " + whole, "Content-Length\x00: " + whole,
		"X: y\rContent-Length: " + whole, "X: y\nContent-Length: " + whole, "Content-Length: \xd9\xa1\xd9\xa2",
		"Content-Length: " + whole + ";x=y", "Content-Length: " + whole + "\r\nContent_Length: 0",
		"Expect: 100-continue\r\nContent-Length: " + whole, "Expect: x 100-continue\r\nContent-Length: " + whole,
		"Expect: 100-continue\r\nContent-Length: 0\r\nContent-Length: " + whole, "Connection: Content-Length\r\n" +
			"Content-Length: " + whole, "Connection: close, Content-Length\r\nContent-Length: " + whole,
		"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: " + whole,
		"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
			"HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: " + whole,
	} {
		add(fmt.Sprintf("CL %d", i), post(cl+"\r\n", smuggled))
		add(fmt.Sprintf("CL %d GET", i), strings.Replace(post(cl+"\r\n", smuggled), "POST", "GET", 1))
	}
	out = append(out, chunkAttacks()...)
	return append(out, headAttacks()...)
}

func chunked(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// chunkAttacks are chunks that end in several places.
func chunkAttacks() (out []attack) {
	size := fmt.Sprintf("%x", len(smuggled))
	for i, body := range []string{
		size + ";a=b\r\n" + smuggled + "\r\n0\r\n\r\n", size + ";\r\n" + smuggled + "\r\n0\r\n\r\n",
		size + ";a=\"\r\n" + smuggled + "\r\n0\r\n\r\n", size + " ;a\r\n" + smuggled + "\r\n0\r\n\r\n",
		size + ";\n" + smuggled + "\r\n0\r\n\r\n", size + "\n" + smuggled + "\n0\n\n", size + "\r" + smuggled +
			"\r\n0\r\n\r\n",
		"2;\nxx\r\n" + size + "\r\n" + smuggled + "\r\n0\r\n\r\n", "2\r\nxx" + "\n" + size + "\r\n" + smuggled +
			"\r\n0\r\n\r\n",
		"0x" + size + "\r\n" + smuggled + "\r\n0\r\n\r\n", "+" + size + "\r\n" + smuggled + "\r\n0\r\n\r\n",
		"-" + size + "\r\n" + smuggled + "\r\n0\r\n\r\n", " " + size + "\r\n" + smuggled + "\r\n0\r\n\r\n",
		size + " \r\n" + smuggled + "\r\n0\r\n\r\n", "000000000000000000000" + size + "\r\n" + smuggled +
			"\r\n0\r\n\r\n",
		"1" + strings.Repeat("0", 16) + size + "\r\n" + smuggled + "\r\n0\r\n\r\n", size + "_0\r\n" + smuggled +
			"\r\n0\r\n\r\n",
		"\r\n" + smuggled, "0\n\n" + smuggled, "0\r\n\n" + smuggled, "0\r\r" + smuggled, "0;\n\n" + smuggled,
		"g\r\n" + smuggled, size + "\x00\r\n" + smuggled + "\r\n0\r\n\r\n", size + "\r\n" + smuggled + "0\r\n\r\n",
		"1\r\nxx\r\n" + smuggled, "1\r\nx\r" + smuggled, ";a\r\n" + smuggled,
		"0\r\nX: y\n\n" + smuggled, "0\r\nX : y\r\nZ\r\n\r\n" + smuggled, "0\r\n X: y\r\n" + smuggled + "\r\n",
		strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\nx\r\n", 20) + smuggled,
	} {
		out = append(out, attack{fmt.Sprintf("chunk %d", i), post("Transfer-Encoding: chunked\r\n", body)})
	}
	return out
}

// headAttacks are heads, hosts and paths that are read in several ways.
func headAttacks() (out []attack) {
	for i, raw := range []string{
		"GET / HTTP/1.1\nHost: shop.localhost\n\n", "GET / HTTP/1.1\rHost: shop.localhost\r\r",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\nX: y\r\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\nX\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\n: y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\nA b: y\r\n\r\n",
		"GET / HTTP/1.1\r\n Host: shop.localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nX: y\r\n folded\r\nHost: shop.localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : shop.localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\nHost: evil\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: evil\r\nHost: shop.localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\n Host: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\n x\r\n\r\n", "GET / HTTP/1.1\r\nHost: shop.localhost x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\x00\r\n\r\n", "GET / HTTP/1.1\r\nHost: shop.localhost, evil\r\n\r\n",
		"GET http://shop.localhost/ HTTP/1.1\r\nHost: evil\r\n\r\n",
		"GET http://evil/ HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET http://evil@shop.localhost/ HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET http://shop.localhost@evil/ HTTP/1.1\r\n" +
			"Host: shop.localhost\r\n\r\n", "GET http://shop.localhost HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET ftp://shop.localhost/ HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET a:http://evil/ HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET a:b HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET shop.localhost:80 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET @evil/ HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"CONNECT evil:80 HTTP/1.1\r\nHost: evil:80\r\n\r\n", "CONNECT / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"TRACE / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "GET //evil/a HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /a/../b HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /a/%2e%2e/%2f%00%0d%0aX:y HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /a\\..\\b HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /a;b?c=d&e#f HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /%zz HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "GET /a b HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /?a b HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "GET /\x00 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /\xff?\xff HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "GET  / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET\t/\tHTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "GET / HTTP/1.1 x\r\nHost: shop.localhost\r\n\r\n",
		"GET / HTTP/1.2\r\nHost: shop.localhost\r\n\r\n", "GET / HTTP/2.0\r\nHost: shop.localhost\r\n\r\n",
		"GET / HTTP/0.9\r\nHost: shop.localhost\r\n\r\n", "GET / http/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET /\r\n\r\n",
		"G\x00T / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", "GET/ / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "\r\n\r\nGET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\nX: " + strings.Repeat("a", 128<<10) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: shop.localhost\r\n" + strings.Repeat("X: y\r\n", 32<<10) + "\r\n",
		"GET /" + strings.Repeat("a", 128<<10) + " HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + smuggled,
		post("Transfer-Encoding: chunked\r\nTrailer: Content-Length, Transfer-Encoding, Host, X-Forwarded-For\r\n",
			"0\r\nContent-Length: 99\r\n\r\n"),
		post("Transfer-Encoding: chunked\r\nTrailer: X, A\r\n",
			"0\r\nX: a\rGET /smuggled HTTP/1.1\r\nA: b\x00\r\n\r\n"),
	} {
		out = append(out, attack{fmt.Sprintf("head %d", i), raw})
	}
	return out
}

// TestSmugglingPayloadsReachNoMachine sends each payload on a connection of its own, with half a close behind it. The machine, of the entry
// or
// of another member, must never see more requests than the entry sent, and each byte that it sees has one meaning.
func TestSmugglingPayloadsReachNoMachine(t *testing.T) {
	for _, way := range []string{"own", "far"} {
		t.Run(way, func(t *testing.T) {
			r, rec := newRecorded(t, way)
			for _, a := range attacks() {
				c := r.connect()
				go func() { _, _ = io.WriteString(c, a.raw) }() // the door may close before its end
				reply := halfClosed(c)
				c.Close()
				seen, total := rec.take()
				what := fmt.Sprintf("%s: all requests that came were sent; the last are %v, of %q, answered %q",
					a.name, seen, clip(a.raw), clip(reply))
				waittest.Until(t, what, func() bool { return strings.Count(r.log.String(), `"machine":"m1"`) >= total })
			}
			rec.check(t)
		})
	}
}

func clip(s string) string { return s[:min(len(s), 600)] }

// halfClosed returns all that a door says until it closes.
func halfClosed(c *hoptest.Client) string {
	var all bytes.Buffer
	buf := make([]byte, 4096)
	for half := false; ; {
		if !half {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		}
		n, err := c.In.Read(buf)
		all.Write(buf[:n])
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() && !half {
			half = true
			_ = c.SetReadDeadline(time.Now().Add(waittest.Patience))
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			continue
		}
		if err != nil {
			return all.String()
		}
	}
}

// newRecorded is a rig whose app shop has one machine, which is a recorder: of its own, or of another member.
func newRecorded(t *testing.T, way string) (*rig, *recorder) {
	rec, to := &recorder{}, far{}
	r := newRig(t, withFar(to))
	h := r.host
	if way == "far" {
		h = r.behind("w2", to).host
	}
	g := h.add("shop", "m1", machine.Started, httpService(nil), rec.serve)
	if way == "far" {
		r.knows(g, machine.Started)
	}
	return r, rec
}

// frames is a client of HTTP/2 that writes what it is given.
type frames struct {
	*http2.Framer
	c   *hoptest.Client
	buf bytes.Buffer
	enc *hpack.Encoder
}

func (r *rig) frames() *frames {
	c := r.connect()
	c.Send(http2.ClientPreface)
	f := &frames{Framer: http2.NewFramer(c, c.In), c: c}
	f.enc = hpack.NewEncoder(&f.buf)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	return f
}

// ask sends a request as it is, and returns its status; "": the stream or the connection was ended.
func (f *frames) ask(fields []hpack.HeaderField, body string) string {
	f.buf.Reset()
	for _, h := range fields {
		_ = f.enc.WriteField(h)
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.buf.Bytes(), EndHeaders: true,
		EndStream: body == ""})
	if body != "" {
		_ = f.WriteData(1, true, []byte(body))
	}
	dec := hpack.NewDecoder(4096, nil)
	for {
		x, err := f.ReadFrame()
		if err != nil {
			return ""
		}
		switch x := x.(type) {
		case *http2.HeadersFrame:
			list, _ := dec.DecodeFull(x.HeaderBlockFragment())
			if len(list) > 0 {
				return list[0].Value
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

// TestSmugglingOverHTTP2ReachesNoMachine: what HTTP/2 can say and HTTP/1.1 cannot does not reach a machine.
func TestSmugglingOverHTTP2ReachesNoMachine(t *testing.T) {
	base := func(method, path, authority string, more ...string) (out []hpack.HeaderField) {
		out = []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"},
			{Name: ":path", Value: path}, {Name: ":authority", Value: authority}}
		for i := 0; i+1 < len(more); i += 2 {
			out = append(out, hpack.HeaderField{Name: more[i], Value: more[i+1]})
		}
		return out
	}
	const h = "shop.localhost"
	type request struct {
		fields []hpack.HeaderField
		body   string
	}
	list := []request{
		{
			base("POST", "/", h, "content-length", "0"),
			smuggled,
		}, {base("POST", "/", h, "content-length", "5"), smuggled},
		{
			base("POST", "/", h, "content-length", "999"),
			smuggled,
		}, {base("POST", "/", h, "content-length", "+5"), smuggled},
		{base("POST", "/", h, "content-length", "5", "content-length", "0"), smuggled},
		{base("POST", "/", h, "content-length", "5, 5"), smuggled}, {base("GET", "/", h, "content-length", "5"), ""},
		{base("POST", "/", h, "transfer-encoding", "chunked"), "0\r\n\r\n" + smuggled},
		{base("POST", "/", h, "transfer_encoding", "chunked"), "0\r\n\r\n" + smuggled},
		{base("POST", "/", h, "transfer-encoding ", "chunked"), "0\r\n\r\n" + smuggled},
		{base("POST", "/", h, "x", "y\r\ntransfer-encoding: chunked"), "0\r\n\r\n" + smuggled},
		{base("POST", "/", h, "x", "y\ntransfer-encoding: chunked"), "0\r\n\r\n" + smuggled},
		{base("POST", "/", h, "x", "y\rz"), smuggled}, {base("POST", "/", h, "x", "y\x00z"), smuggled},
		{
			base("POST", "/", h, "x\r\ny", "z"),
			smuggled,
		}, {base("POST", "/", h, "x: y\r\ntransfer-encoding", "chunked"), smuggled},
		{base("POST", "/", h, "x y", "z"), smuggled}, {base("POST", "/", h, "X", "z"), smuggled},
		{base("POST", "/", h, "", "z"), smuggled}, {base("POST", "/", h, ":x", "z"), smuggled},
		{base("POST", "/", h, "x:y", "z"), smuggled}, {base("GET", "/", h, ":path", "/smuggled"), ""},
		{base("GET", "/", h, "x", "y", ":method", "POST"), ""},
		{base("GET", "/", h, "connection", "upgrade", "upgrade", "websocket"), ""},
		{base("GET", "/", h, "te", "chunked"), ""}, {base("GET", "/", h, "host", "evil"), ""},
		{base("GET", "/", h, "host", h, "host", "evil"), ""}, {base("GET", "/", h, "x_forwarded_for", "1.2.3.4"), ""},
		{
			base("GET /smuggled HTTP/1.1", "/", h),
			"",
		}, {base("GET\r\n", "/", h), ""}, {base("GET /smuggled", "/", h), ""},
		{
			base("", "/", h),
			"",
		}, {base("GET\t/smuggled", "/", h), ""}, {base("get", "/", h), ""}, {base("G@T", "/", h), ""},
		{base("GET", "/ HTTP/1.1\r\nX: y", h), ""}, {base("GET", "/smuggled HTTP/1.1", h), ""},
		{base("GET", "/?a HTTP/1.1", h), ""}, {base("GET", "/?/smuggled HTTP/1.0", h), ""}, {base("GET", "", h), ""},
		{base("GET", "*", h), ""}, {base("GET", "smuggled", h), ""}, {base("GET", "http://evil/", h), ""},
		{base("GET", "//evil/", h), ""}, {base("GET", "/\t", h), ""}, {base("GET", "/?\x7f", h), ""},
		{base("GET", "/", ""), ""}, {base("GET", "/", h+"/smuggled"), ""}, {base("GET", "/", h+"\r\nX: y"), ""},
		{base("GET", "/", h+" x"), ""}, {base("GET", "/", "evil@"+h), ""}, {base("GET", "/", h+":80:81"), ""},
		{base("GET", "/", h+"#"), ""}, {base("GET", "/", h+",evil"), ""}, {base("CONNECT", "/", h), ""},
		{[]hpack.HeaderField{{Name: ":method", Value: "CONNECT"}, {Name: ":authority", Value: h}}, ""},
		{append(base("GET", "/", h)[:3:3], hpack.HeaderField{Name: "host", Value: h}), ""},
	}
	scheme := base("GET", "/", h)
	scheme[1].Value = "http://evil/smuggled?"
	list = append(list, request{scheme, ""})
	for _, way := range []string{"own", "far"} {
		t.Run(way, func(t *testing.T) {
			r, rec := newRecorded(t, way)
			answered := 0
			for i, a := range list {
				f := r.frames()
				status := f.ask(a.fields, a.body)
				f.c.Close()
				if status == "200" {
					answered++
				}
				// One whose stream was ended may be seen while the next is asked.
				seen, total := rec.take()
				if asked := i + 1; total > asked || total < answered {
					t.Errorf("%v is answered %q; the machine saw %v, %d of %d asked and %d answered", a.fields, status,
						seen, total, asked, answered)
				}
				if strings.Contains(strings.Join(seen, " "), "smuggled") {
					t.Errorf("%v passes: %v", a.fields, seen)
				}
			}
			rec.check(t)
		})
	}
}
