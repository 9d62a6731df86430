// Package gateway serves the API of package api over HTTP: it checks who asks, reads the request, asks the workers, and
// says what they said. It holds no machine: apps, secrets and idempotency keys live in its Catalog, all else with the
// workers.
//
// What it serves is api.Routes, and nothing else; docs/reference/api.md lists it. There is no cookie and no session, so
// a browser has no ambient right that a foreign page could use; a request that a browser says comes from another site
// is refused all the same.
package gateway
