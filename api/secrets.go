package api

import "time"

// Secret describes a secret without its value.
type Secret struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SecretList lists an app's secrets.
type SecretList struct {
	Secrets []Secret `json:"secrets"`
	Version uint64   `json:"version"`
}

// SecretSet is the answer to setting a secret.
type SecretSet struct {
	Secret
	Version uint64 `json:"version"`
}

// SecretVersion counts the changes of an app's secrets.
type SecretVersion struct {
	Version uint64 `json:"version"`
}

// SecretValues is the request to set secrets; a null value deletes one.
type SecretValues struct {
	Values map[string]*string `json:"values"`
}
