package machine

// Metadata of a machine that souk made by itself, like another one of its service.
const (
	MetadataLike = "souk_made_like" // the id of that machine
	MetadataFor  = "souk_made_for"  // what it was made for: MadeForLoad or MadeForWarm
)

// Values of MetadataFor.
const (
	MadeForLoad = "load" // requests that those that were there did not do for: services[].create_up_to
	MadeForWarm = "warm" // to be woken by a request to come: services[].warm
)

// MadeText reads from a machine's config why souk made the machine by itself; "" where somebody asked for it.
func MadeText(c *Config) string {
	if c == nil || c.Metadata[MetadataLike] == "" {
		return ""
	}
	like := c.Metadata[MetadataLike]
	switch c.Metadata[MetadataFor] {
	case MadeForWarm:
		return "a warm spare, made like " + like
	case MadeForLoad:
		return "made for requests, like " + like
	}
	return ""
}
