// Package quota is what namespaces may spend: a price for each resource and band, budgets of credits, the meter that
// each worker keeps of what is spent on it, and the order of fair shares. It is pure: now is an argument, and nothing
// is stored.
//
// A budget of R credits an hour with a burst of B is a leaky bucket that is full of debt at most to its rim B. What a
// namespace spends it owes; what it owes is made good at the rate owed/tau, with tau = B/R. Its balance is B - owed.
// Two things follow. Whoever stays within the balance spends no more than B + R*T in any time T, and may spend R for
// ever. And debts add up: each worker keeps what is owed for its own machines and nobody else writes it, so the balance
// is a pure function of the budget, the workers' counters and now (Of), with no state that several would have to agree
// upon. See docs/decisions/0020-quota.md for why it is not "credits that accrue up to a bound", which needs such a
// state.
//
// Whoever asks for more than the balance is refused (placement.CodeQuota), or lent to: a lent machine is charged
// nothing and is the first to be evicted. Machines that run when the balance is gone are lent to, as many as it takes
// to come back to R (Shift); none is stopped because of a quota.
package quota
