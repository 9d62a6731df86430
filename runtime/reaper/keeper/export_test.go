package keeper

// Lose breaks the connection to the keeper, which stays.
func (k *Keeper) Lose() error { return k.conn.Close() }
