package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cli"
)

// wrongLines are what newcomers type, with the habits of other tools, and what slips from the fingers.
const wrongLines = `souk rnu -- /bin/true
souk list
souk machines
souk inspect web
souk ssh web
souk kill web
souk delete web
souk deploy
souk apply -f web.json
souk nodes
souk stats
souk atach web
souk squeue
souk srun hostname
souk login
souk run
souk run ls
souk gang ls
souk submit list
souk run web.json
souk run --memory lots -- /bin/true
souk run --memory -1 -- /bin/true
souk run --cpus two -- /bin/true
souk run --cpus 0.3 -- /bin/true
souk run --cpu 300m -- /bin/true
souk run --cpu 0 -- /bin/true
souk run --memory 0.5m -- /bin/true
souk run --name
souk run --nmae web -- /bin/true
souk run --attach --detach -- /bin/true
souk run --count 0 -- /bin/true
souk run --count 3 --attach -- /bin/true
souk run --env =x -- /bin/true
souk submit --memory 1x -- /bin/true
souk submit --array 5-1 -- /bin/true
souk gang -n 0 -- /bin/true
souk logs
souk logs --tail -1 web
souk logs --since yesterday web
souk exec web
souk exec -y web -- bash
souk proxy 8080
souk proxy web 8080
souk proxy 8080:0 web
souk port-forward web 8080
souk explain
souk services a b
souk run --http 8080 -- /bin/true
souk run --http :99999 -- /bin/true
souk run --soft-limit 3 -- /bin/true
souk cp web:/a web:/b
souk stop
souk destroy
souk wait
souk status
souk scale
souk scale shop
souk scale shop many
souk scale shop 3 4
souk scale shop web=1 web=2
souk scale shop =3
souk scale shop -1
souk releases
souk releases shop a b
souk run --replicas 3 --name web nginx
souk run --replicas 3 --rm nginx
souk run --replicas 3 -it nginx
souk run --replicas 3 --count 2 nginx
souk run --replicas 1001 nginx
souk run --replicas 3 --group Web nginx
souk run --group web nginx
souk run --note first nginx
souk ps web
souk ps --state ended
souk apps destory shop
souk volumes frob
souk secrets set =x
souk job frob
souk node drian a
souk node drain
souk policy check
souk context add prod 10.0.0.7:4280
souk --addr 10.0.0.7:4280 ps
souk --addr nonsense ps
souk image pull
souk image pull NGINX
souk image pull nginx:1.29 redis:8
souk image rm
souk image frob
souk images prune now
souk image load
souk rmi nginx
souk pull nginx
souk completion tcsh
souk help nothing
souk run -p 80 nginx
souk run --publish 8080:80/sctp nginx
souk run --publish localhost:8080:80 nginx
souk run --publish 127.0.0.1::80 nginx
souk run --publish ::1:8080:80 nginx
souk run --publish [127.0.0.1]:8080:80 nginx
souk run --port 8080:80 nginx
`

// Every wrong command line ends with 2, and says what was wrong and what to type.
func TestWrongCommandLinesExit2WithAHint(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for line := range strings.Lines(wrongLines) {
		args := strings.Fields(line)[1:]
		var out, errs bytes.Buffer
		c := &cli.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }}
		code := c.Run(context.Background(), rootFor(c, args), args)
		if code != cli.ExitUsage || out.Len() > 0 {
			t.Errorf("%s: code %d, and on stdout %q", strings.TrimSpace(line), code, out.String())
		}
		fmt.Fprintf(&got, "$ %s%s\n", line, errs.String())
	}
	file := filepath.Join("testdata", "wrong.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-file +now); write it with go test ./cmd/souk -run WrongCommandLines -update\n%s", file, diff)
	}
}
