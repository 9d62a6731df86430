package machine

import (
	"strconv"
	"strings"
)

// Metadata of a machine that started together with others.
const (
	// MetadataGang is the gang's id. Machines of an app with the same value are worth nothing without each other.
	MetadataGang = "souk.gang"
	MetadataRank = "souk.gang_rank" // the machine's rank in the gang, from 0
)

// GangPrefix precedes a gang's ID in commands that take machines. No ID or name of a machine has a slash.
const GangPrefix = "gang/"

// GangOf returns the gang of a config's machine, in the form for commands, and its rank there; "": it is in none.
func GangOf(c *Config) (gang string, rank int) {
	if c == nil || c.Metadata[MetadataGang] == "" {
		return "", 0
	}
	rank, err := strconv.Atoi(c.Metadata[MetadataRank])
	if err != nil {
		rank = 0
	}
	return GangPrefix + c.Metadata[MetadataGang], max(0, rank)
}

// IsGang reports whether s names a gang: "gang/" and its ID. No replica has such a name: its number is below
// MaxReplicas.
func IsGang(s string) bool {
	id, is := strings.CutPrefix(s, GangPrefix)
	return is && id != "" && !IsSlot(s)
}
