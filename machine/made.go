package machine

// Metadata of a machine that souk made by itself, as a copy of another one of its service.
const (
	MetadataLike = "souk_made_like" // the ID of the copied machine
	MetadataFor  = "souk_made_for"  // what it was made for: MadeForLoad or MadeForWarm
)

// Values of MetadataFor.
const (
	MadeForLoad = "load" // for requests beyond the existing machines: services[].create_up_to
	MadeForWarm = "warm" // for a later request to wake: services[].warm
)

// MadeText returns, from a machine's config, why souk made the machine by itself; "" if a user made it.
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
