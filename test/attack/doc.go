// Package attack attacks a cluster of real agents, each its own process: with the whole disk of a removed member, with
// the certificate of a member that is only a worker, and as an unprivileged user of a host. Success is judged from
// outside: by what other members list, by a file that a machine wrote, by whether a token is accepted. docs/security.md
// has the promises.
package attack
