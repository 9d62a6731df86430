package container

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/user"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/spec"
)

// passwd is the path of the table of users in a root.
const passwd = "etc/passwd"

// maxTable bounds an image's tables of users and groups.
const maxTable = 1 << 20

// userOf looks up a user in a root by Docker's rules: "", "name", "uid", "name:group", "uid:gid". Numbers need not be
// in the tables. A library parses the tables; the rules are implemented here, because the library's own stop at 2^31.
// what names the owner of the root ("image").
func userOf(root, name, what string) (spec.User, error) {
	people, err := rootfs.ReadFile(root, passwd, maxTable)
	groups, err2 := rootfs.ReadFile(root, "etc/group", maxTable)
	if err := errors.Join(err, err2); err != nil {
		return spec.User{}, fault.Wrap(err, fault.Precondition, runtime.CodeUser,
			"the %s's tables of users cannot be read", what)
	}
	named, group, hasGroup := strings.Cut(name, ":")
	if named == "" {
		named = "0"
	}
	uid, isNumber := parseUserNumber(named)
	found, err := user.ParsePasswdFilter(bytes.NewReader(people), func(u user.User) bool {
		return u.Name == named || isNumber && int64(u.Uid) == int64(uid)
	})
	if err != nil || len(found) == 0 && !isNumber || len(found) > 0 && !fitsUint32(found[0].Uid, found[0].Gid) {
		return spec.User{}, fault.Wrap(err, fault.Precondition, runtime.CodeUser,
			"the %s has no user %q: name one that is in its /etc/passwd, or a number", what, name)
	}
	out := spec.User{UID: uid}
	member := named
	if len(found) > 0 {
		out.UID, out.GID, member = uint32(found[0].Uid), uint32(found[0].Gid), found[0].Name //nolint:gosec // they fit
	}
	if hasGroup && group != "" {
		out.GID, err = groupOf(groups, group, what)
		return out, err
	}
	all, err := user.ParseGroupFilter(bytes.NewReader(groups), func(g user.Group) bool {
		return fitsUint32(g.Gid) && g.Gid != int(out.GID) && slices.Contains(g.List, member)
	})
	for _, g := range all {
		out.Groups = append(out.Groups, uint32(g.Gid)) //nolint:gosec // it fits
	}
	if err != nil {
		return spec.User{}, fault.Wrap(err, fault.Precondition, runtime.CodeUser,
			"the %s's tables of users cannot be read", what)
	}
	return out, nil
}

// withUser returns a root's table of users with a line added for a container's user whose uid it lacks, in the form of
// podman and CRI-O: without it, programs that look up their own user (initdb, ssh) fail. nil: no line is needed, or
// there is no table.
func withUser(table []byte, who spec.User) []byte {
	found, err := user.ParsePasswdFilter(bytes.NewReader(table), func(u user.User) bool {
		return int64(u.Uid) == int64(who.UID) || u.Name == strconv.FormatUint(uint64(who.UID), 10)
	})
	if err != nil || len(found) > 0 || len(table) == 0 {
		return nil
	}
	out := bytes.Clone(table)
	if out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return fmt.Appendf(out, "%d:x:%d:%d:container user:/:/bin/sh\n", who.UID, who.UID, who.GID)
}

func groupOf(table []byte, name, what string) (uint32, error) {
	gid, isNumber := parseUserNumber(name)
	found, err := user.ParseGroupFilter(bytes.NewReader(table), func(g user.Group) bool {
		return g.Name == name || isNumber && int64(g.Gid) == int64(gid)
	})
	if err == nil && len(found) > 0 && fitsUint32(found[0].Gid) {
		return uint32(found[0].Gid), nil //nolint:gosec // it fits
	}
	if err == nil && isNumber {
		return gid, nil
	}
	return 0, fault.Wrap(err, fault.Precondition, runtime.CodeUser,
		"the %s has no group %q: name one that is in its /etc/group, or a number", what, name)
}

// parseUserNumber parses a uid or gid; the largest number is not valid.
func parseUserNumber(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n < math.MaxUint32 //nolint:gosec // of 32 bits
}

func fitsUint32(all ...int) bool {
	return !slices.ContainsFunc(all, func(n int) bool { return n < 0 || n >= math.MaxUint32 })
}
