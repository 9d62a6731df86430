package cli

import (
	"io"
	"os"

	"github.com/soukhq/souk/cli/envfile"
	"github.com/soukhq/souk/fault"
)

// EnvFile reads a file of variables, "-" being stdin.
func (c *Env) EnvFile(name string) ([]envfile.Var, error) {
	in := c.In
	if name == "-" {
		name = "stdin"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, envfile.CodeEnvFile, "the file %s cannot be read", name)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, envfile.MaxFile+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, envfile.CodeEnvFile, "%s cannot be read", name)
	}
	return envfile.Parse(name, string(text))
}
