package unixuser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// How long an answer of the name service is believed.
const (
	believed = 30 * time.Second
	doubted  = 2 * time.Second // that there is no such user, or no answer
	most     = 4096            // answers kept
)

// Users are the Unix users as whom a worker runs programs. root is never one of them.
type Users struct {
	text string // cluster.UnixUsersAttribute

	asking singleflight.Group

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

// Numbered returns the admitted user of a number on this host. Denied: the user is not admitted.
func (u *Users) Numbered(ctx context.Context, uid uint32) (Account, error) {
	return u.lookUp(ctx, fmt.Sprintf("%d", uid),
		func(ctx context.Context) (Account, error) { return Numbered(ctx, uid) })
}

// Find returns the user that another host knows by a name and number. It is an error if the number is another here.
func (u *Users) Find(ctx context.Context, who cluster.UnixUser) (Account, error) {
	a, err := u.lookUp(ctx, who.Name, func(ctx context.Context) (Account, error) { return Named(ctx, who.Name) })
	if err == nil && a.UID != who.UID {
		return Account{}, fault.New(fault.Precondition, fault.CodeUnixUser,
			"user %s has the number %d on this host and %d where it was asked for: a user needs one number on all "+
				"hosts", who.Name, a.UID, who.UID)
	}
	return a, err
}

// lookUp returns the answer kept under a key, a name or a number in digits. Without one, or if it is too old, it asks the
// name service, once for all that want this answer at the same time: any user of the host can make souk ask.
func (u *Users) lookUp(ctx context.Context, key string, ask func(context.Context) (Account, error)) (Account, error) {
	if u == nil {
		return Account{}, fault.New(fault.Denied, fault.CodeUnixUser,
			"this worker runs nothing as a Unix user: start souk there with --unix-users")
	}
	if x, current := u.kept(key); current {
		return x.account, x.err
	}
	asked := u.asking.DoChan(key, func() (any, error) {
		return u.keep(key, u.askService(context.WithoutCancel(ctx), ask)), nil // others wait for it, too
	})
	select {
	case x := <-asked:
		got := x.Val.(answer) // what keep returns
		return got.account, got.err
	case <-ctx.Done():
		return Account{}, fault.Wrap(ctx.Err(), fault.Timeout, fault.CodeDeadline,
			"this host's name service did not answer in the time given")
	}
}

// askService asks for a user, and whether the operator admits the user.
func (u *Users) askService(ctx context.Context, ask func(context.Context) (Account, error)) answer {
	a, err := ask(ctx)
	if err == nil {
		err = u.admit(ctx, &a)
	}
	return answer{account: a, err: err}
}

// kept returns the answer under a key, and whether it is recent enough.
func (u *Users) kept(key string) (x answer, current bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x, known := u.answers[key]
	return x, known && time.Now().Before(x.until)
}

// keep keeps an answer, and returns the one that holds: while the name service does not answer, the last good one.
func (u *Users) keep(key string, x answer) answer {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, known := u.answers[key]; known && last.err == nil && fault.Is(x.err, fault.Unavailable) {
		x = last
		x.until = time.Now().Add(doubted)
	} else if x.until = time.Now().Add(believed); x.err != nil {
		x.until = time.Now().Add(doubted)
	}
	if len(u.answers) >= most {
		clear(u.answers)
	}
	u.answers[key] = x
	return x
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
