// Package gateway serves the Machines API over HTTP: it checks who asks, reads the request, asks the workers, and says
// what they said. It holds no machine: apps, secrets and idempotency keys live in its Catalog, all else with the workers.
//
// # Who may ask
//
// Every request needs the token ("Authorization: Bearer T", also "FlyV1 T", several separated by commas), but for
// /livez and /readyz, which tell nothing. There is no cookie and no session, so a browser has no ambient right that a
// foreign page could use; a request that a browser says comes from another site is refused all the same.
//
// # The Machines API
//
//	POST   /v1/apps                                     {name | app_name, org_slug, network, app_role_id} -> 201 App
//	GET    /v1/apps                                     ?org_slug= &app_role= -> {total_apps, apps}
//	GET    /v1/apps/{app}
//	DELETE /v1/apps/{app}                               destroys its machines, then its volumes, then the app -> 202
//
//	POST   /v1/apps/{app}/machines                      Launch -> Machine; Idempotency-Key
//	GET    /v1/apps/{app}/machines                      ?include_deleted= &region= &metadata.K=V &state= &summary=
//	GET    /v1/apps/{app}/machines/{id}
//	POST   /v1/apps/{app}/machines/{id}                 Launch (whole) -> Machine
//	DELETE /v1/apps/{app}/machines/{id}                 ?kill= (or force=)
//	POST   /v1/apps/{app}/machines/{id}/start           -> {message, status, previous_state}
//	POST   /v1/apps/{app}/machines/{id}/stop            {signal, timeout}
//	POST   /v1/apps/{app}/machines/{id}/restart         ?force_stop= &timeout= &signal=
//	POST   /v1/apps/{app}/machines/{id}/suspend
//	                                                    start, stop, restart, suspend answer when they are done; with
//	                                                    "Prefer: respond-async" when they have begun
//	POST   /v1/apps/{app}/machines/{id}/signal          {signal: 9 | "SIGKILL"}
//	POST   /v1/apps/{app}/machines/{id}/cordon
//	POST   /v1/apps/{app}/machines/{id}/uncordon
//	POST   /v1/apps/{app}/machines/{id}/exec            {cmd | command, stdin, timeout} -> {exit_code, stdout, stderr}
//	GET    /v1/apps/{app}/machines/{id}/ps              ?sort_by= &order=
//	GET    /v1/apps/{app}/machines/{id}/wait            ?state= (repeated; "settled") &timeout=1..60 &version= | instance_id= &from_event_id=
//	GET    /v1/apps/{app}/machines/{id}/events          ?limit=
//	GET    /v1/apps/{app}/machines/{id}/versions
//	GET    /v1/apps/{app}/machines/{id}/metadata
//	PUT    /v1/apps/{app}/machines/{id}/metadata        the whole map
//	PATCH  /v1/apps/{app}/machines/{id}/metadata        some keys; null deletes
//	POST   /v1/apps/{app}/machines/{id}/metadata/{key}  {value} -> 204
//	DELETE /v1/apps/{app}/machines/{id}/metadata/{key}  -> 204
//	GET    /v1/apps/{app}/machines/{id}/lease
//	POST   /v1/apps/{app}/machines/{id}/lease           ?ttl= or {ttl, description} -> 201; with the nonce header: refresh
//	DELETE /v1/apps/{app}/machines/{id}/lease           with the nonce header
//	GET    /v1/orgs/{org}/machines                      ?updated_after= &cursor= &limit= &include_deleted= -> {machines, next_cursor}
//	GET    /v1/orgs/{org}/volumes                       -> {volumes}
//
//	GET    /v1/apps/{app}/volumes
//	POST   /v1/apps/{app}/volumes
//	GET    /v1/apps/{app}/volumes/{volume}
//	PUT    /v1/apps/{app}/volumes/{volume}              {snapshot_retention, auto_backup_enabled}
//	DELETE /v1/apps/{app}/volumes/{volume}
//	PUT    /v1/apps/{app}/volumes/{volume}/extend       {size_gb} -> {volume, needs_restart}
//	GET    /v1/apps/{app}/volumes/{volume}/snapshots
//	POST   /v1/apps/{app}/volumes/{volume}/snapshots
//
//	GET    /v1/platform/regions                         {Regions, Nearest}
//	POST   /v1/platform/placements                      a simulation; reserves nothing
//
//	GET    /v1/apps/{app}/secrets                       {secrets: [{name, digest}], version}; never a value
//	POST   /v1/apps/{app}/secrets                       {values: {name: value | null}}
//	GET    /v1/apps/{app}/secrets/{name}
//	POST   /v1/apps/{app}/secrets/{name}                {value}
//	DELETE /v1/apps/{app}/secrets/{name}
//
//	GET    /v1/apps/{app}/ip_assignments                {ips: []}
//
// Answered with 501: the rest of ip_assignments, secretkeys, certificates, postgres.
//
// A machine's verb under a lease needs the header fly-machine-lease-nonce. Every answer carries fly-request-id.
//
// # souk's own
//
//	GET    /v1/souk/version                             {version, go, region, workers}
//	GET    /v1/souk/openapi.json                        this API, described
//	GET    /v1/souk/workers                             {workers: [cluster.Record], unreachable: [{worker, error}]}
//	POST   /v1/souk/workers/{worker}/quote              {app, launch} -> {verdict, record, evict}
//	POST   /v1/souk/workers/{worker}/holds              {app, launch, hold, ttl} -> {hold, expires, machine}
//	DELETE /v1/souk/workers/{worker}/holds/{hold}       {ok: true}
//	POST   /v1/souk/workers/{worker}/machines           {app, launch, hold, evict, reason} -> Machine
//	POST   /v1/souk/apps/{app}/gangs                    {size, min, same, wait, launch} -> {gang, machines, size, tries, refusals}
//	PUT    /v1/souk/workers/{worker}/cordon             {owner, reason, ttl, drain} -> cluster.Record
//	DELETE /v1/souk/workers/{worker}/cordon             -> cluster.Record
//	GET    /v1/souk/workers/{worker}/drain              -> {worker, moves: [{app, machine, name, state, fate, to, reason}]}; nothing is done
//	POST   /v1/souk/apps/{app}/machines/{id}/move       made anew at another worker -> {from, worker, machine, down_ms}
//	GET    /v1/souk/top                                 {at, workers: [{worker, member, age_ms, record, starts, stuck}]}
//	GET    /v1/souk/health                              {member, at, ok, findings: [{member, check, ok, have, advice}]}
//	POST   /v1/souk/leave                               the member that answers says goodbye and ends; its machines go on
//	GET    /v1/souk/removed                             {removed: [{member, by, reason, at}]}
//	DELETE /v1/souk/members/{member}                    ?force= &by= &reason= : it may come back only by joining anew
//	GET    /v1/souk/apps/{app}/disconnect               {policy}: never, fast or fenced
//	PUT    /v1/souk/apps/{app}/disconnect               {policy}
//	GET    /v1/souk/members                             {members: [{id, addr, api, state, since, rtt_ns, self}]}
//	GET    /v1/souk/doctor                              {workers: [{worker, findings}]}
//	GET    /v1/souk/events                              ?app= -> NDJSON of machine.EventOf, from now on
//	GET    /v1/souk/apps/{app}/machines/{id}/logs       ?tail= &follow= &cursor= -> NDJSON of runtime.LogLine
//	GET    /v1/souk/apps/{app}/machines/{id}/files      ?path= -> a tar stream
//	PUT    /v1/souk/apps/{app}/machines/{id}/files      ?path=, body a tar stream -> 204
//	GET    /v1/souk/apps/{app}/machines/{id}/explain    ?decision= -> {placement, sentences, decision, decisions, now: [Candidate]}
//	POST   /v1/souk/apps/{app}/plan                     body a launch -> {machine, verdict, worker, sentences, changes, decision}
//	GET    /v1/souk/decisions                           ?app= &machine= &outcome= &since= &limit= &cursor= -> {decisions, next_cursor}
//	GET    /v1/souk/decisions/{decision}                {decision, sentences}
//	GET    /v1/souk/view                                {at, workers: [{age_ms, record}], unreachable}
//	POST   /v1/souk/apps/{app}/machines/{id}/exec       a stream both ways, see below
//
//	POST   /v1/souk/jobs                                {id?, app, command, first, last, ...} -> 201 Job
//	GET    /v1/souk/jobs                                ?app= -> {jobs}
//	GET    /v1/souk/jobs/{job}                          Job, with why its tasks wait
//	GET    /v1/souk/jobs/{job}/wait                     ?timeout=1..60 &done= -> Job, when it has ended or more than done of its tasks have
//	POST   /v1/souk/jobs/{job}/cancel                   -> Job
//	GET    /v1/souk/jobs/{job}/tasks                    ?from= &limit= &state= (repeated) -> {tasks, next}
//	GET    /v1/souk/jobs/{job}/tasks/{index}/logs       ?tail= &follow= -> NDJSON of runtime.LogLine
//
// The id of a job in these paths may also be its name: the newest of that name is meant.
//
//	GET    /v1/souk/policies                            {policies: [{name, version, default, shadow, apps, ...}]}
//	POST   /v1/souk/policies                            {text: a policy file} -> {policy, changed}
//	GET    /v1/souk/policies/{policy}                   ?version= -> the same with text and versions
//	DELETE /v1/souk/policies/{policy}                   one that nobody uses
//	POST   /v1/souk/policies/{policy}/rollback          {to: version | 0}
//	POST   /v1/souk/policy-plan                         {text} -> {policy, scope, comparison}
//	PUT    /v1/souk/policy-choice                       {default, shadow}: null leaves one, "" gives it up
//	GET    /v1/souk/apps/{app}/policy                   {policy}
//	PUT    /v1/souk/apps/{app}/policy                   {policy}
//	GET    /v1/souk/apps/{app}/eviction-budget          {eviction_budget, default}: how much of it a worker may evict
//	PUT    /v1/souk/apps/{app}/eviction-budget          for machines made from now on; {default: true} takes it back
//	GET    /v1/souk/namespaces                          {namespaces: [{name, apps, budget, balance, spent, lent, rate, workers, ...}]}
//	POST   /v1/souk/namespaces                          {name}
//	DELETE /v1/souk/namespaces/{namespace}              one that no app is in
//	GET    /v1/souk/namespaces/{namespace}/quota        one of the list
//	PUT    /v1/souk/namespaces/{namespace}/quota        {budget: {credits_per_hour, burst, lend} | null, weight}
//	GET    /v1/souk/price                               {per_hour: {cpu, ...}, bands: {batch, ...}}
//	PUT    /v1/souk/price                               the same
//	GET    /v1/souk/apps/{app}/namespace                {namespace}
//	PUT    /v1/souk/apps/{app}/namespace                {namespace}: who pays for machines that are made from now on
//
// The id of a machine in souk's own paths may also be the machine's name.
//
// An NDJSON stream that breaks off after its first byte ends with a line {"error": "..."}, in the shape of every error.
//
// The exec stream: the request's body is one line of JSON, {"command": [...]}, then the command's stdin until the body
// ends. The answer is NDJSON, sent as it happens: {"stream": "stdout", "data": BASE64} or "stderr", and last
// {"exit_code": N}. Both directions flow at once over HTTP/1.1. Closing the connection ends the command.
//
// # Without /v1
//
//	GET    /livez      200 "ok" while the process serves; no token
//	GET    /readyz     200 "ok" when at least one worker answers, else 503; no token
//	GET    /metrics    Prometheus text
//
// # Errors
//
// Every error is {"error": sentence, "status"?, "souk": {kind, code, scope, resource, retry_after, ...}} with the code
// of the Machines API; see errors.go. A refusal is never 502 or 503, which clients repeat.
package gateway
