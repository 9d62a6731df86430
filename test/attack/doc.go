// Package attack tries what an attacker can try on a cluster of real agents, each a process of its own: with the whole
// disk of a member that was removed, with the certificate of a member that is a worker only, and as a user of a host
// without any right. Whether a try succeeded is seen from outside: in what other members list, in a file that a
// machine wrote, in whether a token is let in. What is promised is in docs/security.md.
package attack
