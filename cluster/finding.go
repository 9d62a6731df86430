package cluster

// Finding is one line of `souk doctor`.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Have   string `json:"have"`
	Advice string `json:"advice,omitempty"` // how to get it, or what is lost without it
}
