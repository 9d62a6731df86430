package cli

// did is the --json output of a command that changed something and has no other output.
type did struct {
	Did  string `json:"did"`
	What string `json:"what"`
}

// Say prints what a command without other output has done: in JSON the verb and its object.
func (c *Env) Say(verb, what, format string, args ...any) {
	if c.JSON {
		c.JSONLine(c.Out, did{verb, what})
		return
	}
	c.Printf(format+"\n", args...)
}
