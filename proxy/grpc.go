package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Statuses of gRPC that the proxy returns.
const (
	grpcDeadline      = 4
	grpcDenied        = 7
	grpcUnimplemented = 12
	grpcInternal      = 13
	grpcUnavailable   = 14
)

// isGRPC reports whether a request is a gRPC call. gRPC clients read errors from header fields of their own.
func isGRPC(r *http.Request) bool {
	rest, is := strings.CutPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
	return is && r.ProtoMajor == 2 && (rest == "" || rest[0] == '+' || rest[0] == ';' || rest[0] == '-')
}

// failGRPC answers an error to a client of gRPC: with the status 200 and without a body, as gRPC wants it. For any
// other status its client would report "unknown". It returns the status that an HTTP client would have got.
func failGRPC(w http.ResponseWriter, id string, err error) (code int) {
	f := fault.As(err)
	code = statusOf(f)
	h := w.Header()
	clear(h)
	h.Set(ErrorHeader, string(f.Code))
	if id != "" {
		h.Set(requestHeader, id)
	}
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(grpcStatus(code, f)))
	h.Set("Grpc-Message", percentEncode(f.Text))
	w.WriteHeader(http.StatusOK)
	return code
}

// grpcStatus maps an HTTP status to gRPC's, as gRPC does for proxies. A hold that ended with the client's own timeout
// is its deadline.
func grpcStatus(code int, f *fault.Error) int {
	switch {
	case f.Code == fault.CodeHeld, code == http.StatusGatewayTimeout:
		return grpcDeadline
	case code == http.StatusNotFound:
		return grpcUnimplemented
	case code == http.StatusForbidden:
		return grpcDenied
	case code < 500:
		return grpcInternal
	}
	return grpcUnavailable
}

// percentEncode encodes a text for the field Grpc-Message.
func percentEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// grpcTimeout returns how long a client of gRPC waits for its answer (the field Grpc-Timeout: digits and a unit).
func grpcTimeout(r *http.Request) (time.Duration, bool) {
	v := r.Header.Get("Grpc-Timeout")
	if len(v) < 2 || len(v) > 9 || !isGRPC(r) {
		return 0, false
	}
	unit, known := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond,
		'u': time.Microsecond, 'n': time.Nanosecond}[v[len(v)-1]]
	n, err := strconv.ParseUint(v[:len(v)-1], 10, 32)
	if !known || err != nil {
		return 0, false
	}
	return time.Duration(min(n, 1<<20)) * unit, true
}
