package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Credentials authenticate to a registry. The zero value is anonymous.
type Credentials struct {
	Username, Password string
	IdentityToken      string // an OAuth 2 refresh token
	RegistryToken      string // a bearer token, sent unchanged
}

func (k Credentials) basicAuth() string {
	if k.Username == "" && k.Password == "" {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(k.Username+":"+k.Password))
}

// answerChallenge returns the value of an Authorization header for a registry's challenges.
func (c *Client) answerChallenge(ctx context.Context, q question, by netip.Addr, challenges []string) (string, error) {
	keys, err := c.o.Credentials(q.registryName())
	if err != nil {
		return "", err
	}
	if keys.RegistryToken != "" {
		return "Bearer " + keys.RegistryToken, nil
	}
	var wantsBasic bool
	for _, ch := range challenges {
		scheme, rest, _ := strings.Cut(ch, " ")
		switch {
		case strings.EqualFold(scheme, "Bearer"):
			return c.fetchToken(ctx, q, by, keys, readParameters(rest))
		case strings.EqualFold(scheme, "Basic"):
			wantsBasic = true
		}
	}
	if basic := keys.basicAuth(); wantsBasic && basic != "" {
		if q.isPlainHTTP() && !isLoopback(q.host) {
			return "", fault.New(fault.Denied, codeRegistryLogin,
				"the registry %s wants a password without TLS; souk sends none in clear", q.name)
		}
		return basic, nil
	}
	return "", q.refusedError(&answer{status: http.StatusUnauthorized, body: http.NoBody}, keys != Credentials{})
}

func (q question) registryName() string {
	if q.mirror {
		return q.host
	}
	return q.name
}

// fetchToken fetches a bearer token from the realm that the registry named; by is the registry's address.
func (c *Client) fetchToken(ctx context.Context, q question, by netip.Addr, keys Credentials,
	p map[string]string) (string,
	error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Whole, errSlow)
	defer cancel()
	realm, err := url.Parse(p["realm"])
	if err != nil || realm.Host == "" {
		return "", fault.New(fault.Invalid, codeRegistryAnswer,
			"the registry %s names no valid token server for %s; ask its operator", q.name, q.what)
	}
	if err := q.mayFollow(realm); err != nil {
		return "", err
	}
	form := url.Values{"service": {p["service"]}, "scope": {"repository:" + q.repository + ":pull"}}
	r := &http.Request{Method: http.MethodGet, Header: http.Header{"User-Agent": {"souk"}}}
	if keys.IdentityToken != "" {
		form.Set("grant_type", "refresh_token")
		form.Set("refresh_token", keys.IdentityToken)
		form.Set("client_id", "souk")
		r.Method = http.MethodPost
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = io.NopCloser(strings.NewReader(form.Encode()))
	} else {
		query := realm.Query()
		for k, v := range form {
			query[k] = v
		}
		realm.RawQuery = query.Encode()
		if basic := keys.basicAuth(); basic != "" {
			r.Header.Set("Authorization", basic)
		}
	}
	a, err := c.sendRequest(ctx, c.clientFor(by), q, r, realm.String())
	if err != nil {
		return "", err
	}
	defer a.body.Close()
	if a.status != http.StatusOK {
		if a.status >= 300 && a.status < 400 {
			return "", fault.New(fault.Denied, codeRegistryReach,
				"the token server of the registry %s redirects, and souk follows no redirect with credentials", q.name)
		}
		return "", q.refusedError(a, keys != Credentials{})
	}
	var doc struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	raw, err := io.ReadAll(io.LimitReader(a.body, 1<<20))
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(raw, &doc); err != nil || doc.Token == "" && doc.AccessToken == "" {
		return "", fault.New(fault.Unavailable, codeRegistryAnswer,
			"%s, the token server of the registry %s, gave no token; try again later", realm.Host, q.name)
	}
	if doc.Token == "" {
		doc.Token = doc.AccessToken
	}
	return "Bearer " + doc.Token, nil
}

// readParameters parses key="value" pairs.
func readParameters(s string) map[string]string {
	out := map[string]string{}
	for s != "" {
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			break
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			value, rest, _ = strings.Cut(rest[1:], `"`)
		} else {
			value, rest, _ = strings.Cut(rest, ",")
		}
		out[strings.ToLower(strings.Trim(key, " ,"))] = value
		s = strings.TrimLeft(rest, ", ")
	}
	return out
}

// DockerConfig returns the credentials in a file in the format of "docker login". It does not run the credential
// helpers that the file names.
func DockerConfig(path string) (func(registry string) (Credentials, error), error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeRegistryLogin, "the credentials in %s cannot be read", path)
	}
	var doc struct {
		Auths map[string]struct {
			Auth, Username, Password     string
			IdentityToken, RegistryToken string
		} `json:"auths"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fault.New(fault.Invalid, codeRegistryLogin,
			"%s is not a config of docker's: it is not JSON of that form; write it with \"docker login\"", path)
	}
	known, helpers := map[string]Credentials{}, map[string]string{}
	for at, a := range doc.Auths {
		k := Credentials{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken,
			RegistryToken: a.RegistryToken}
		if a.Auth != "" {
			pair, err := base64.StdEncoding.DecodeString(a.Auth)
			name, password, ok := strings.Cut(string(pair), ":")
			if err != nil || !ok {
				return nil, fault.New(fault.Invalid, codeRegistryLogin,
					"the credentials of %s in %s are not NAME:PASSWORD in base64; log in again", at, path)
			}
			k.Username, k.Password = name, strings.TrimRight(password, "\x00")
		}
		known[configHost(at)] = k
	}
	for at, program := range doc.CredHelpers {
		helpers[configHost(at)] = program
	}
	return func(registry string) (Credentials, error) {
		k := known[configHost(registry)]
		if program := helpers[configHost(registry)]; k == (Credentials{}) && program != "" {
			return k, fault.New(fault.Unimplemented, codeRegistryLogin,
				"%s leaves the credentials of %s to the program %s, which souk does not run; write them into "+
					"auths", path,
				registry, fault.Clip(program, 100))
		}
		return k, nil
	}, nil
}

// configHost returns the registry for a key of docker's config.
func configHost(at string) string {
	at = strings.TrimPrefix(strings.TrimPrefix(at, "https://"), "http://")
	host, _, _ := strings.Cut(at, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return "docker.io"
	}
	return host
}
