// Package health makes the health checks of machines: a Checker schedules and makes them.
//
// The worker says what is to be checked (Set, Forget) and gets the results (Options.Report). A waiting check is an
// entry of a heap; only a check in progress is a goroutine. At most maxAsks are in progress, and maxAppAsks of one
// app, so that an app whose checks hang delays only its own.
//
// A check asks the machine's own address and nothing else: it follows neither redirects nor other addresses in the
// response. At most maxAnswer bytes of a response are read, and maxBody shown.
package health
