package cli

import "github.com/spf13/cobra"

// foreignVerb returns an error that names souk's equivalent of another tool's verb. It runs before flags are parsed,
// since that verb's flags are unknown, too.
func foreignVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 || otherTools[args[0]] == "" {
		return nil
	}
	if cmd, _, err := root.Find(args[:1]); err == nil && cmd != root {
		return nil
	}
	return unknownCommand(root, args[0])
}

// otherTools names verbs of other tools that souk has no command for, and what does the same here.
//
//nolint:gochecknoglobals // a constant
var otherTools = map[string]string{
	"machine": "souk ps", "machines": "souk ps", "list": "souk ps",
	"inspect": "souk status MACHINE", "describe": "souk status MACHINE", "info": "souk status MACHINE",
	"create": "souk run --no-start -- CMD", "launch": "souk run -- CMD",
	"apply":  "souk deploy FILE, souk run -f FILE, or souk update MACHINE -f FILE",
	"set":    "souk update MACHINE",
	"delete": "souk destroy MACHINE", "remove": "souk destroy MACHINE", "kill": "souk stop MACHINE, or souk signal",
	"ssh": "souk exec -it MACHINE -- /bin/sh", "shell": "souk exec -it MACHINE -- /bin/sh",
	"console": "souk exec -it MACHINE -- /bin/sh",
	"log":     "souk logs MACHINE", "tail": "souk logs -f MACHINE",
	"stats": "souk top", "nodes": "souk node ls", "hosts": "souk node ls", "worker": "souk workers",
	"drain": "souk node drain NODE", "cordon": "souk node cordon NODE",
	"unpause": "souk start MACHINE",
	"clone":   "souk get MACHINE | souk run -f - --name NAME",
	"alloc":   "souk status MACHINE", "volume": "souk volumes", "secret": "souk secrets", "app": "souk apps",
	"service": "souk services", "route": "souk routes", "port-forward": "souk proxy LOCAL:REMOTE MACHINE",
	"forward": "souk proxy LOCAL:REMOTE MACHINE", "expose": "souk run --http :PORT -- CMD",
	"srun": "souk run --attach -- CMD", "salloc": "souk run -it -- /bin/sh, or souk gang -n N -- CMD",
	"squeue": "souk job ls", "scancel": "souk job cancel JOB [--task INDEX]",
	"sinfo": "souk workers", "sacct": "souk job ls -a",
	"qsub": "souk submit -- CMD", "qstat": "souk job ls", "qdel": "souk job cancel JOB", "queue": "souk job ls",
	"pull": "souk image pull IMAGE", "load": "souk image load FILE", "rmi": "souk image rm IMAGE",
	"prune": "souk image prune", "prefetch": "souk image prefetch IMAGE",
	"login": "souk context", "auth": "souk token", "server": "souk dev, or souk agent",
	"up":      "souk deploy FILE, for an app by its souk.toml, or souk dev, for a souk",
	"down":    "souk scale APP 0, or souk apps destroy APP",
	"build":   "souk image load FILE, of an image that docker or buildah has built, or a registry's name in souk.toml",
	"compose": "souk deploy FILE, with a souk.toml (souk help souk-toml)",
	"backup":  "souk help operating: Backup and restore", "restore": "souk help operating: Backup and restore",
	"uninstall": "souk dev --remove, or souk agent --remove",
}
