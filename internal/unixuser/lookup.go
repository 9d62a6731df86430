// Package unixuser looks up users of this host as its name service has them (files, LDAP, SSSD), and says which of them
// a worker runs programs as.
package unixuser

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Account is a user of this host.
type Account struct {
	cluster.UnixUser
	GID    uint32
	Groups []uint32 // all of his groups, sorted, with GID
	Home   string
	Shell  string
}

// LoginEnv returns the variables that a login as this user sets, as KEY=VALUE, sorted.
func (a *Account) LoginEnv() []string {
	return []string{"HOME=" + a.Home, "LOGNAME=" + a.Name, "SHELL=" + a.Shell, "USER=" + a.Name}
}

// patience bounds one question to the name service: a directory server that is down may hold an answer for long.
const patience = 5 * time.Second

// getent is the program that asks the name service. A statically linked souk, as it is released, could only read
// /etc/passwd by itself.
const getent = "getent"

// notFound is getent's exit code for an unknown name.
const notFound = 2

// Named returns the user of a name; NotFound: this host has none.
func Named(ctx context.Context, name string) (Account, error) {
	if !validName(name) {
		return Account{}, noUser(fmt.Sprintf("user %.80q", name))
	}
	a, err := lookUp(ctx, name)
	if err == nil && a.Name != name {
		err = noUser("user " + name) // a name service may ignore case, and two names would be one owner
	}
	return a, err
}

// Numbered returns the user of a number; NotFound: this host has none.
func Numbered(ctx context.Context, uid uint32) (Account, error) {
	a, err := lookUp(ctx, strconv.FormatUint(uint64(uid), 10))
	if err == nil && a.UID != uid {
		err = noUser(fmt.Sprintf("user with the number %d", uid))
	}
	return a, err
}

// validName reports whether a text may name a user. One of digits alone would be taken for a number.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && name[0] != '-' && strings.Trim(name, "0123456789") != "" &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r == 0x7f || strings.ContainsRune(":,/", r)
		})
}

const maxName = 128 // bytes

func noUser(what string) error {
	return fault.New(fault.NotFound, fault.CodeUnixUser, "this host has no %s: create it here, with the same number "+
		"as on the other hosts", what)
}

// lookUp asks for a user by name, or by number in digits.
func lookUp(ctx context.Context, key string) (a Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	line, err := exec.CommandContext(ctx, getent, "passwd", key).Output()
	var ended *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return withoutGetent(key)
	case errors.As(err, &ended) && ended.ExitCode() == notFound:
		return a, noUser("user " + key)
	case err != nil:
		return a, fault.Wrap(err, fault.Unavailable, fault.CodeUnixUser, "this host's name service does not say who "+
			"the user %s is", key)
	}
	if a, err = parsePasswd(string(line)); err != nil {
		return a, err
	}
	out, err := exec.CommandContext(ctx, "id", "-G", "--", a.Name).Output()
	if err != nil {
		return a, fault.Wrap(err, fault.Unavailable, fault.CodeUnixUser, "this host's name service does not say in "+
			"which groups the user %s is", a.Name)
	}
	return a, a.addGroups(strings.Fields(string(out)))
}

// parsePasswd reads a line of passwd(5), without the groups.
func parsePasswd(line string) (a Account, err error) {
	f := strings.Split(strings.TrimRight(line, "\n"), ":")
	if len(f) < 7 {
		return a, fault.New(fault.Precondition, fault.CodeUnixUser, "this host's entry of a user is damaged: it has "+
			"%d fields, not 7", len(f))
	}
	uid, err1 := strconv.ParseUint(f[2], 10, 32)
	gid, err2 := strconv.ParseUint(f[3], 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return a, fault.Wrap(err, fault.Precondition, fault.CodeUnixUser, "this host's entry of user %s is damaged",
			f[0])
	}
	return Account{UnixUser: cluster.UnixUser{Name: f[0], UID: uint32(uid)}, GID: uint32(gid), Home: f[5],
		Shell: f[6]}, nil
}

// addGroups adds groups by number.
func (a *Account) addGroups(ids []string) error {
	all := []uint32{a.GID}
	for _, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fault.Wrap(err, fault.Precondition, fault.CodeUnixUser, "the groups of user %s cannot be read",
				a.Name)
		}
		all = append(all, uint32(n))
	}
	slices.Sort(all)
	a.Groups = slices.Compact(all)
	return nil
}

// withoutGetent looks a user up by Go's own means, on a host that lacks the program.
func withoutGetent(key string) (a Account, err error) {
	find := user.Lookup
	if strings.Trim(key, "0123456789") == "" {
		find = user.LookupId
	}
	u, err := find(key)
	if err != nil {
		return a, noUser("user " + key)
	}
	line := strings.Join([]string{u.Username, "", u.Uid, u.Gid, "", u.HomeDir, "/bin/sh"}, ":")
	if a, err = parsePasswd(line); err != nil {
		return a, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return a, fault.Wrap(err, fault.Unavailable, fault.CodeUnixUser, "the groups of user %s cannot be read", a.Name)
	}
	return a, a.addGroups(ids)
}

// groupNumber returns the number of a group; NotFound: this host has none.
func groupNumber(ctx context.Context, name string) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	line, err := exec.CommandContext(ctx, getent, "group", name).Output()
	id := ""
	var ended *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		g, err := user.LookupGroup(name)
		if err != nil {
			return 0, noUser("group " + name)
		}
		id = g.Gid
	case errors.As(err, &ended) && ended.ExitCode() == notFound:
		return 0, noUser("group " + name)
	case err != nil:
		return 0, fault.Wrap(err, fault.Unavailable, fault.CodeUnixUser, "this host's name service does not say what "+
			"the group %s is", name)
	default:
		if f := strings.Split(string(line), ":"); len(f) >= 3 {
			id = f[2]
		}
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fault.Wrap(err, fault.Precondition, fault.CodeUnixUser, "this host's entry of group %s is damaged",
			name)
	}
	return uint32(n), nil
}

// People returns the names of this host's users who are not of the system, as far as the name service lists them.
func People(ctx context.Context) (out []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lines, err := exec.CommandContext(ctx, getent, "passwd").Output()
	for line := range strings.Lines(string(lines)) {
		if a, err := parsePasswd(line); err == nil && cluster.IsPerson(a.UID) {
			out = append(out, a.Name)
		}
	}
	return out, err
}
