// Package pki is a cluster's own certificate authority (CA), and what each of its members holds of it.
//
// # Vocabulary
//
// A *member* is one souk process of a cluster: a worker, a gateway, or both. Its *certificate* names its id and its
// roles, one URI for each role: souk://worker/w1, souk://gateway/w1. It contains no host names and no addresses: the id
// identifies a member, and gossip finds its address. A *root* signs certificates; the *bundle* is all the roots that
// members trust now. The *issuer* is a member that has the CA's directory and so may sign; its certificate has that
// role.
//
// # Lifecycle
//
//	Init -> NewToken -> Redeem (a member joins) -> renewals, from the first third of a certificate's life on
//	Prepare (a new root is trusted) -> Activate (it signs) -> Retire (the old one is trusted no longer)
//
// # Validity
//
// A certificate is valid for 90 days and is renewed after 30, so a cluster without its issuer keeps going for at least
// 60 days; only joins stop at once. Roots are valid for ten years. Nothing here reads a clock: now is an argument, so
// that tests can move the time. What to do when everything has expired is in docs/break-glass.md.
//
// # Keys
//
// All keys are Ed25519 (RFC 8032): there is no curve or hash to choose, and signing needs no randomness (with ECDSA a
// bad random source can reveal the key), and souk's tokens use the same kind of key. No browser ever sees these
// certificates. Files that hold keys have mode 0600 and are replaced atomically.
package pki
