package machine

import (
	"fmt"
	"strings"
)

// NewName draws a name for a machine, such as "quiet-harbour-4711". There are about twenty million.
func NewName(chance Entropy) string {
	pick := func(words []string) string { return words[chance.Uint64()%uint64(len(words))] }
	return fmt.Sprintf("%s-%s-%d", pick(adjectives), pick(things), 1000+chance.Uint64()%9000)
}

//nolint:gochecknoglobals // constants
var (
	adjectives = strings.Fields(`amber ample bold brave brisk broad calm clear clever cool crisp dusty eager early easy even fair fast
		fine firm fleet fresh gentle glad golden good grand green happy high honest idle keen kind late light little
		lively lucky merry mild neat nimble noble open patient plain proud quick quiet ready rosy round sharp shiny
		silent simple smooth snug soft solid spare steady still strong sunny swift tidy warm wide wild wise young`)
	things = strings.Fields(`alley anchor arch bakery barrel bazaar bell bench bridge brook canal candle carpet cart castle cedar
		cellar cloud copper coral corner court cove dune field forge fountain garden gate grove harbour hill island
		kettle lamp lane lantern ledger loom market meadow mill mint mosaic oasis orchard palm path pepper pier
		plaza pond porter quay river saffron sail silk spice square stall stone store tea tent thread tower valley
		wagon well wharf window`)
)
