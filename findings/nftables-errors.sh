#!/usr/bin/env bash
# google/nftables v0.3.0 (Go): which of its calls say "no such file or directory" so that errors.Is sees it.
#
# Guessed: asking for something in a table that is not there fails at each call, and errors.Is(err, unix.ENOENT) is true of
#          each error, as it is of that of Flush.
# Seen:    Flush and ListTableOfFamily wrap the kernel's error. GetSetElements and ListChain print it into a text, so
#          errors.Is is false. GetRules and GetObjects return nothing, and no error.
#
# What follows: before a table is read that another process may remove or flush, compare texts or list the tables again;
# an empty list of rules does not mean that the table is there.
#
# Needs Go, the Go module proxy and unshare (util-linux); no root where user namespaces are allowed. Fails when what is
# seen changes.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > main.go <<'GO'
package main

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

func main() {
	c, err := nftables.New()
	if err != nil {
		panic(err)
	}
	say := func(call string, found int, err error) {
		fmt.Printf("%s found=%d failed=%v is-enoent=%v\n", call, found, err != nil, errors.Is(err, unix.ENOENT))
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "not-there"}
	c.DelTable(table)
	say("Flush", 0, c.Flush())
	_, err = c.ListTableOfFamily(table.Name, table.Family)
	say("ListTableOfFamily", 0, err)
	elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: "x"})
	say("GetSetElements", len(elements), err)
	_, err = c.ListChain(table, "x")
	say("ListChain", 0, err)
	rules, err := c.GetRules(table, &nftables.Chain{Name: "x"})
	say("GetRules", len(rules), err)
	objects, err := c.GetObjects(table)
	say("GetObjects", len(objects), err)
}
GO
export GOFLAGS=
go mod init finding 2> /dev/null
go get github.com/google/nftables@v0.3.0 golang.org/x/sys@v0.50.0 2> /dev/null
go build -o nf .
share=(unshare -n)
[ "$(id -u)" = 0 ] || share=(unshare -rn)
"${share[@]}" ./nf | tee seen
diff - seen <<'EXPECTED'
Flush found=0 failed=true is-enoent=true
ListTableOfFamily found=0 failed=true is-enoent=true
GetSetElements found=0 failed=true is-enoent=false
ListChain found=0 failed=true is-enoent=false
GetRules found=0 failed=false is-enoent=false
GetObjects found=0 failed=false is-enoent=false
EXPECTED
echo "as it was seen"
