package complete

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// withoutPackage has the functions of the package bash-completion that the script for bash calls, for hosts without it.
const withoutPackage = `# What the rest of this calls of the package bash-completion, where that is not installed.
if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref() {
        words=() cword=0
        local i word
        # A word that bash has cut at = or : is one word again.
        for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
            word=${COMP_WORDS[i]}
            if ((i > 0 && ${#words[@]} > 1)) && [[ $word == [=:]* || ${words[${#words[@]} - 1]} == *[=:] ]] &&
                ! [[ $word == -* ]]; then
                words[${#words[@]} - 1]+=$word
            else
                words+=("$word")
            fi
            if ((i == COMP_CWORD)); then cword=$((${#words[@]} - 1)); fi
        done
        cur=${words[cword]} prev=${words[cword > 0 ? cword - 1 : 0]}
    }
fi

`

// Bash makes the command print a script for bash that needs no other package.
func Bash(c *cli.Env, cmd *cobra.Command) {
	script := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := io.WriteString(c.Out, withoutPackage); err != nil {
			return err
		}
		return script(cmd, args)
	}
}
