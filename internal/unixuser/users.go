package unixuser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// How long an answer of the name service is believed.
const (
	believed = 30 * time.Second
	doubted  = 2 * time.Second // that there is no such user
	most     = 4096            // answers kept
)

// Users are the Unix users as whom a worker runs programs. root is never one of them.
type Users struct {
	text string // cluster.UnixUsersAttribute

	mu      sync.Mutex
	answers map[string]answer // by name, and by number in digits, which no name consists of
}

// answer is one of the name service.
type answer struct {
	account Account
	err     error
	until   time.Time
}

// Parse reads whom the operator admits: "all" for everybody from number 1000 on, or names and @groups, with commas
// between them. "": nil, nobody.
func Parse(text string) (*Users, error) {
	if text == "" {
		return nil, nil
	}
	text = strings.ReplaceAll(text, " ", "")
	for _, s := range strings.Split(text, ",") {
		switch {
		case s == cluster.AllUnixUsers && text != s:
			return nil, fault.New(fault.Invalid, fault.CodeUnixUser,
				"the Unix users are %q, or names and @groups, not both: %q", s, text)
		case s == "root":
			return nil, fault.New(fault.Invalid, fault.CodeRoot, "root is never a user that tasks run as: leave it out")
		case !validName(strings.TrimPrefix(s, "@")):
			return nil, fault.New(fault.Invalid, fault.CodeUnixUser,
				"%.80q is no name of a user, nor @ and the name of a group: write \"all\", or alice,bob,@lab", s)
		}
	}
	if len(text) > cluster.MaxText {
		return nil, fault.New(fault.Invalid, fault.CodeUnixUser,
			"the list of Unix users has %d bytes, more than %d: put them into a group, and name that as @GROUP",
			len(text), cluster.MaxText)
	}
	return &Users{text: text, answers: map[string]answer{}}, nil
}

// String returns the text that Parse reads.
func (u *Users) String() string {
	if u == nil {
		return ""
	}
	return u.text
}

// Numbered returns the admitted user of a number on this host. Denied: he is not admitted.
func (u *Users) Numbered(ctx context.Context, uid uint32) (Account, error) {
	return u.remember(fmt.Sprintf("%d", uid), func() (Account, error) { return Numbered(ctx, uid) },
		func(a *Account) error { return u.admit(ctx, a) })
}

// Find returns the user that another host knows by a name and number. It is an error if the number is another here.
func (u *Users) Find(ctx context.Context, who cluster.UnixUser) (Account, error) {
	a, err := u.remember(who.Name, func() (Account, error) { return Named(ctx, who.Name) },
		func(a *Account) error { return u.admit(ctx, a) })
	if err == nil && a.UID != who.UID {
		return Account{}, fault.New(fault.Precondition, fault.CodeUnixUser,
			"user %s has the number %d on this host and %d where it was asked for: a user needs one number on all "+
				"hosts",
			who.Name, a.UID, who.UID)
	}
	return a, err
}

// remember returns the answer under a key, a name or a number in digits, and asks if there is none or it is too old.
func (u *Users) remember(key string, look func() (Account, error), admit func(*Account) error) (Account, error) {
	if u == nil {
		return Account{}, fault.New(fault.Denied, fault.CodeUnixUser,
			"this worker runs nothing as a Unix user: start souk there with --unix-users")
	}
	u.mu.Lock()
	x, known := u.answers[key]
	u.mu.Unlock()
	if known && time.Now().Before(x.until) {
		return x.account, x.err
	}
	x.account, x.err = look()
	if x.err == nil {
		x.err = admit(&x.account)
	}
	x.until = time.Now().Add(believed)
	if x.err != nil {
		x.until = time.Now().Add(doubted)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.answers) >= most {
		clear(u.answers)
	}
	u.answers[key] = x
	return x.account, x.err
}

// admit refuses a user that the operator has not admitted.
func (u *Users) admit(ctx context.Context, a *Account) error {
	if a.UID == 0 || a.GID == 0 || slices.Contains(a.Groups, 0) {
		return fault.New(fault.Denied, fault.CodeRoot,
			"user %s is root, or in its group, and nothing runs as root for a Unix user", a.Name)
	}
	for _, s := range strings.Split(u.text, ",") {
		group, isGroup := strings.CutPrefix(s, "@")
		switch {
		case s == a.Name, s == cluster.AllUnixUsers && cluster.IsPerson(a.UID):
			return nil
		case isGroup:
			gid, err := groupNumber(ctx, group)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			if err == nil && slices.Contains(a.Groups, gid) {
				return nil
			}
		}
	}
	return fault.New(fault.Denied, fault.CodeUnixUser, "user %s is not among those whom this worker admits (%s)",
		a.Name, u.text)
}
