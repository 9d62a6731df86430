// Package certs provides the certificates that the proxy shows. For each name that a client asks for (SNI) it takes the
// first source that has one:
//
//	files   the user's own, in a directory that is looked at all the time
//	ACME    of an authority such as Let's Encrypt, got when the name is asked for first, and renewed
//	local   of souk's own root, for names below .localhost and the like
//
// A name that no app answers to costs a look and nothing else: no certificate is got or made for it.
package certs
