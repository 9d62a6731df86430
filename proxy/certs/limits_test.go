package certs

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCertificateOrdersAreRateLimited: so many at once, and then one each time that orderEvery has gone by.
func TestCertificateOrdersAreRateLimited(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := &acmeCerts{left: orders, since: now}
	for n := range orders {
		if !a.mayOrder(now) {
			t.Fatalf("none after %d", n)
		}
	}
	for _, step := range []struct {
		after time.Duration
		may   bool
	}{{0, false}, {orderEvery - time.Second, false}, {2 * time.Second, true}, {0, false}, {3 * orderEvery, true}} {
		now = now.Add(step.after)
		if may := a.mayOrder(now); may != step.may {
			t.Errorf("%s later: %v", step.after, may)
		}
	}
}

// TestFailedOrdersBackOff: each failed order makes the next pause longer, for a bounded number of names.
func TestFailedOrdersBackOff(t *testing.T) {
	now, why := time.Unix(1e9, 0), errors.New("no")
	a := &acmeCerts{ctx: context.Background(), failed: map[string]failure{}, log: slog.New(slog.DiscardHandler)}
	wait := againAfter
	for range 10 {
		a.recordOutcome("a.example", why, now)
		if err := a.beginWait("a.example", now.Add(wait-time.Second)); !errors.Is(err, why) {
			t.Fatalf("within %s: %v", wait, err)
		}
		if err := a.beginWait("a.example", now.Add(wait+time.Second)); err != nil {
			t.Fatalf("after %s: %v", wait, err)
		}
		wait = min(2*wait, againAtMost)
	}
	a.recordOutcome("a.example", nil, now)
	if err := a.beginWait("a.example", now); err != nil {
		t.Errorf("after it went well: %v", err)
	}
	for range 2 * maxFailed {
		a.recordOutcome(rand.Text(), why, now)
	}
	if len(a.failed) > maxFailed {
		t.Errorf("%d names are kept", len(a.failed))
	}
}

// TestNamesAndTokensOfStrangersAreValidated, tokens and hosts as strangers send them.
func TestNamesAndTokensOfStrangersAreValidated(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "a.b": true, "xn--a.b": true, "_a.b": true, "": false,
		".": false, "a.": false, ".a": false, "a..b": false, "-a": false, "a-": false, "A": false, "*.a": false,
		"a/b": false, "1.2.3.4": false, "::1": false, strings.Repeat("a.", 126) + "a": true,
		strings.Repeat("a.", 127) + "a": false} {
		if validName(name) != want {
			t.Errorf("%q is valid: %v", name, !want)
		}
	}
	for token, want := range map[string]bool{"abc-DEF_0": true, "": false, "a/b": false, "a.b": false, "a b": false,
		strings.Repeat("a", 129): false} {
		if validToken(token) != want {
			t.Errorf("%q is a token: %v", token, !want)
		}
	}
	for host, want := range map[string]string{"A.example:80": "a.example", "a.example.": "a.example",
		"[::1]:80": "::1"} {
		if got := hostOf(host); got != want {
			t.Errorf("%q is %q", host, got)
		}
	}
}

// TestStorageSealsOnlyKeys and nothing else, those that were in clear before as well.
func TestStorageSealsOnlyKeys(t *testing.T) {
	t.Setenv("SOUK_KEY_FILE", "")
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	s := newStorage(filepath.Join(t.TempDir(), "acme"))
	for _, file := range []string{"a/a.key", "a/a.crt"} {
		if err := s.Store(t.Context(), file, []byte("content")); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOUK_KEY_FILE", key)
	if err := s.openKeys(); err != nil {
		t.Fatal(err)
	}
	for file, sealed := range map[string]bool{"a/a.key": true, "a/a.crt": false} {
		raw, err := os.ReadFile(s.Filename(file))
		if err != nil || strings.HasPrefix(string(raw), "souk sealed") != sealed {
			t.Errorf("%s: %q, %v", file, raw, err)
		}
		if data, err := s.Load(t.Context(), file); string(data) != "content" || err != nil {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	t.Setenv("SOUK_KEY_FILE", "")
	if err := s.openKeys(); err == nil {
		t.Error("sealed keys are read without the key")
	}
}

// TestLocksAreExclusiveAndCancellable: a lock has one holder, and a waiter can cancel.
func TestLocksAreExclusiveAndCancellable(t *testing.T) {
	s := newStorage(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Lock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if free, err := s.TryLock(ctx, "a"); free || err != nil {
		t.Errorf("it has two holders: %v", err)
	}
	if free, _ := s.TryLock(ctx, "b"); !free {
		t.Error("another lock is not free")
	}
	next := make(chan error)
	go func() { next <- s.Lock(t.Context(), "a") }()
	cancel()
	if err := s.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("one that leaves: %v", err)
	}
	if err := s.Unlock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Errorf("the next: %v", err)
	}
}
