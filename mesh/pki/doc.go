// Package pki is a cluster's own certificate authority (CA), and what each of its members holds of it.
//
// # Vocabulary
//
// A *member* is one souk process of a cluster: a worker, a gateway, or both. Its *certificate* names its id and its
// roles, one URI for each role: souk://worker/w1, souk://gateway/w1. There are no host names and no addresses in it:
// who speaks is a matter of the id, where it is a matter of gossip. A *root* signs certificates; the *bundle* is all
// the roots that members trust now. The *issuer* is a member that has the CA's directory and so may sign; it has that
// role in its certificate.
//
// # Lifecycle
//
//	Init -> NewToken -> Redeem (a member joins) -> renewals, from the first third of a certificate's life on
//	Prepare (a new root is trusted) -> Activate (it signs) -> Retire (the old one is trusted no longer)
//
// # How long things hold
//
// A certificate lives 90 days and is renewed after 30, so a cluster without its issuer keeps going for at least 60
// days; only joins stop at once. Roots live ten years. Nothing here asks a clock: now is an argument, so that all of it
// is tested with time moved. What to do when everything has ended is in docs/break-glass.md.
//
// # Keys
//
// All keys are Ed25519 (RFC 8032): no curve or hash to choose, no chance needed to sign (a bad source of chance cannot
// give the key away, as it can with ECDSA), and the same kind of key that souk's tokens use. No browser ever sees these
// certificates. Files that hold keys have mode 0600 and are replaced whole.
package pki
