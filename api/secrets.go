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

// SecretsRoll sets secrets of an app, and replaces the machines of its service's groups that read them.
type SecretsRoll struct {
	// Values are the secrets; a null value deletes one. Left out: all set secrets that the release does not have yet.
	Values map[string]*string `json:"values,omitempty"`
	Parent *string            `json:"parent,omitempty"` // as in NewRelease
}

// SecretsRolled is the answer to SecretsRoll.
type SecretsRolled struct {
	Secrets []Secret `json:"secrets"` // the secrets that were set
	Version uint64   `json:"version"`
	Head    *Head    `json:"head,omitempty"` // the head with the new release; none: no service reads any of them
	Groups  []string `json:"groups"`         // groups whose machines are replaced
}
