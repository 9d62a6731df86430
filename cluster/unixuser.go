package cluster

import (
	"slices"
	"strings"
)

// UnixUser is a user of hosts, known by name and number. Both must be the same on every host that runs something as this
// user: a name alone may be another person elsewhere, and so may a number. The zero value is no user.
type UnixUser struct {
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
}

// IsZero reports whether it is no user.
func (u UnixUser) IsZero() bool { return u == UnixUser{} }

// IsPerson reports whether a number of a user or group is a person's on Linux: those below are of the system, and nobody
// owns what has no owner.
func IsPerson(id uint32) bool {
	const first, nobody = 1000, 65534
	return id >= first && id != nobody
}

// UnixUsersAttribute names the attribute by which a worker says as which Unix users it runs programs: a text that
// AdmitsUnixUser reads. Without it the worker runs none as them.
const UnixUsersAttribute = "unix-users"

// AllUnixUsers stands in that text for every user who is not of the system.
const AllUnixUsers = "all"

// AdmitsUnixUser reports whether a worker's text about Unix users ("all", or names and @groups with commas between them)
// may admit the user of a name. Whether a user is in a group, and who he is there, only the worker itself knows.
func AdmitsUnixUser(text, name string) bool {
	if text == AllUnixUsers {
		return true
	}
	return slices.ContainsFunc(strings.Split(text, ","), func(s string) bool {
		return s == name || strings.HasPrefix(s, "@")
	})
}
