package cli

// did is what a command prints in --json that changes something and has nothing else to show.
type did struct {
	Did  string `json:"did"`
	What string `json:"what"`
}

// Say prints what a command has done that has nothing else to show: in JSON the verb and what it was done to.
func (c *Env) Say(verb, what, format string, args ...any) {
	if c.JSON {
		c.JSONLine(c.Out, did{verb, what})
		return
	}
	c.Printf(format+"\n", args...)
}
