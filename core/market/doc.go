// Package market holds the two parties every placement is made of: a Seller, which is the only authority over one
// worker's capacity, and a Buyer, which ranks a stale view and asks. Both are pure state machines.
package market
