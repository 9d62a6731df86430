// Package certs has the certificates that the proxy shows: for each name that a client asks for (SNI), the first there
// is of
//
//	files   the user's own, in a directory that is looked at all the time
//	ACME    of an authority such as Let's Encrypt, got when the name is asked for first, and renewed
//	local   of a root of souk's own, for names below .localhost and the like
//
// A name that no app answers to costs a look and nothing else: no certificate is got or made for it.
package certs
