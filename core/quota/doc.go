// Package quota limits the spending of namespaces: a price for each resource and band, budgets of credits, each
// worker's meter, and the order of fair shares. It is pure: now is an argument, and nothing is stored.
//
// A budget of R credits an hour with a burst of B is a leaky bucket that is full of debt at most to its rim B.
// Spending adds to the namespace's debt; the debt decays at the rate owed/tau, with tau = B/R. Its balance is B -
// owed. Two things follow. A namespace that stays within its balance spends no more than B + R*T in any time T, and
// may spend R for ever. And debts add up: each worker keeps what is owed for its own machines and nobody else writes
// it, so the balance is a pure function of the budget, the workers' counters and now (Of), without state that several
// workers would have to agree on. See docs/decisions/0020-quota.md for why it is not "credits that accrue up to a
// bound", which needs such a state.
//
// A request beyond the balance is refused (placement.CodeQuota), or runs unpaid ("lent"): a lent machine is charged
// nothing and is the first to be evicted. When the balance is used up, as many running machines are lent as it takes
// to return to the rate R (Shift); none is stopped because of a quota.
package quota
